//! Unix sockets in a directory that containers share, without any network.

use super::end::{Attachment, Link};
use crate::{ContainerId, Lab, LabError};

/// Names a pair of sockets for each link; the programs create them.
pub(super) fn sockets(lab: &mut Lab, pairs: &[[ContainerId; 2]]) -> Result<Vec<Link>, LabError> {
    let dir = lab.dir()?;
    let link = |&containers| {
        let places = lab.next_places();
        let [a, b] = places.map(|place| dir.sockets().join(format!("unix{place}")));
        let attachments = [
            Attachment::Datagrams { here: a.clone(), there: b.clone() },
            Attachment::Datagrams { here: b, there: a },
        ];
        Link::new(containers, attachments, places, false)
    };
    Ok(pairs.iter().map(link).collect())
}
