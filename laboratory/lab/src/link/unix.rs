//! Unix sockets in a directory that containers share, without any network.

use super::end::{Attachment, Link};
use crate::{ContainerId, Lab, LabError};

/// Names a pair of sockets for each link; the programs create them.
pub(super) fn sockets(lab: &mut Lab, pairs: &[[ContainerId; 2]]) -> Result<Vec<Link>, LabError> {
    let dir = lab.dir()?;
    let link = |&containers| {
        let ids = lab.next_ends();
        let [a, b] = ids.map(|id| dir.sockets().join(format!("unix{id}")));
        let attachments = [
            Attachment::Datagrams { here: a.clone(), there: b.clone() },
            Attachment::Datagrams { here: b, there: a },
        ];
        Link::new(containers, attachments, ids, false)
    };
    Ok(pairs.iter().map(link).collect())
}
