//! State for the process after this one: recorded for one after a crash or a restart, and handed over
//! to one that takes over, on the same pages.

use std::convert::Infallible;
use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use dray_daemon::{Store, Successor};
use dray_datapath::lock;
use dray_port::{Held, Live};

use crate::recorder::{Offer, Pages, PortRecorder, Recorder};
use crate::upf::Upf;

/// Time that the handling of a message may take while a port is recorded.
const RECORDING: Duration = Duration::from_millis(5);
/// The same, while a port is to be handed over.
const FREEZING: Duration = Duration::from_secs(1);
/// Pause after a port was recorded: a peer must not keep the recorder busy.
const PAUSE: Duration = Duration::from_millis(2);
/// Interval at which ports are looked at that have not told of a change.
const LOOK: Duration = Duration::from_secs(1);

impl Upf {
    /// Leaves all that there is to the process after this one. With a `store`, sessions and ports are
    /// recorded there from now on.
    pub fn record(self: &Arc<Self>, offer: Offer<'_>, store: Option<Store>) -> io::Result<()> {
        let [uplink, downlink] = self.counters.each_ref().map(|ledger| ledger.as_fd());
        let [n3, n6] = [&self.n3, &self.n6].map(|interface| interface.neighbours.as_fd());
        let memory = [self.accounts.as_fd(), uplink, downlink, n3, n6];
        let pages = Arc::new(Pages::new(offer, memory)?);
        // It is called once.
        let _ = self.pages.set(pages.clone());
        let Some(store) = store.map(Arc::new) else { return Ok(()) };
        lock(&self.model).record_by(Recorder::new(store.clone(), pages.clone()));
        *lock(&self.port_recorder) = Some(PortRecorder::new(store, pages));
        let (tell, told) = sync_channel(1);
        for link in self.ends.iter().filter_map(|end| end.link.as_ref()) {
            let tell = tell.clone();
            // It has been told, if there is no room.
            link.on_change(Box::new(move || _ = tell.try_send(())));
        }
        let upf = Arc::downgrade(self);
        let run = move || record_ports(&upf, &told);
        thread::Builder::new().name("dray-record".to_owned()).spawn(run)?;
        Ok(())
    }

    /// Hands over to another process. First sessions do not change any more, control threads stand
    /// still, and the pages tell the other process what there is; packets pass. Once it is ready, data
    /// threads let go of the ports, and this process ends. If anything fails, all goes on.
    ///
    /// # Errors
    /// Why it has failed.
    pub(crate) fn hand_over(&self, successor: &Successor) -> Result<Infallible, String> {
        let text = |error: io::Error| error.to_string();
        let pages = self.pages.get().ok_or("it has not started yet")?;
        let model = lock(&self.model);
        let _recorder = lock(&self.port_recorder);
        let mut held = Vec::new();
        for (name, end) in ["n3", "n6"].into_iter().zip(&self.ends) {
            let failed = |what: &str| format!("port {name:?}: {what}");
            let port = end.hold(FREEZING);
            let port = port.ok_or_else(|| failed("such a port cannot be handed over"))?;
            held.push(port.map_err(|error| failed(&error.to_string()))?);
        }
        let lives: Vec<Live> = held.iter_mut().map(Held::take_live).collect();
        let journal = model.journal().map_err(text)?;
        let mut all = vec![pages.sessions(journal.as_fd())];
        for (number, live) in lives.iter().enumerate() {
            all.push(pages.port(number, live).map_err(text)?);
        }
        let (mut sizes, mut descriptors) = (Vec::new(), Vec::new());
        for (text, of) in all {
            sizes.push((String::from_utf8(text).expect("JSON"), of.len()));
            descriptors.extend(of);
        }
        let message = serde_json::to_vec(&sizes).map_err(|error| error.to_string())?;
        successor.offer(&message, &descriptors)?;
        let _transmits = lock(&self.transmits);
        self.course.hold(self.threads().count())?;
        successor.let_go().inspect_err(|_| self.course.go())
    }

    /// Ends this process by `end` so that the next one continues it from the store: once data threads
    /// have let go of the ports, and control threads stand still.
    pub fn leave(&self, end: impl FnOnce()) {
        let _model = lock(&self.model);
        let _transmits = lock(&self.transmits);
        // Threads that have ended use no port.
        let _ = self.course.hold(self.threads().count());
        let mut recorder = lock(&self.port_recorder);
        let _held = [0, 1].map(|number| self.record_port(number, &mut recorder, true));
        end();
    }

    /// Has ports that have changed recorded; returns false if one is busy, or could not be kept.
    fn record_changed_ports(&self) -> bool {
        let mut recorder = lock(&self.port_recorder);
        let recorded = [0, 1].map(|number| self.record_port(number, &mut recorder, false).is_ok());
        recorded == [true; 2]
    }

    /// Has a port recorded if it has changed. Returns it standing still if this `is_last`.
    fn record_port(
        &self,
        number: usize,
        recorder: &mut Option<PortRecorder>,
        is_last: bool,
    ) -> io::Result<Option<Held<'_>>> {
        let end = &self.ends[number];
        let recorder = recorder.as_mut();
        let recorder = recorder.filter(|recorder| recorder.is_due(number, end.changes()));
        if recorder.is_none() && !is_last {
            return Ok(None);
        }
        // Without one, the port can only be opened again.
        let Some(mut held) = end.hold(RECORDING).transpose()? else { return Ok(None) };
        recorder.map_or(Ok(()), |recorder| recorder.record(number, &held.take_live()))?;
        Ok(Some(held))
    }
}

/// Has the ports of `upf` recorded whenever it is told of a change.
fn record_ports(upf: &Weak<Upf>, told: &Receiver<()>) {
    while let Some(upf) = upf.upgrade() {
        let is_complete = upf.record_changed_ports();
        drop(upf);
        thread::sleep(PAUSE);
        let patience = if is_complete { LOOK } else { PAUSE };
        // No port tells of changes.
        if told.recv_timeout(patience) == Err(RecvTimeoutError::Disconnected) {
            thread::sleep(patience);
        }
    }
}
