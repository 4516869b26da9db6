//! State for the process after this one, on the same pages after a crash or a restart and at a
//! take-over.

use std::convert::Infallible;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use dray_daemon::Store;
use dray_datapath::lock;
use dray_port::{PausedPort, PortSnapshot, PortUri};
use dray_service::{Outgoing, Page, RecordTimeout, Recorded, Sockets, Unrecorded, freeze_all};

use crate::journal::SessionRecorder;
use crate::leaving::{Leaving, PROGRAM, Recorder, State};
use crate::upf::Upf;

impl Upf {
    /// Prepares the state for the process after this one; `ports` are N3 and N6. With a `store`,
    /// sessions and ports are recorded there from now on.
    pub fn record(
        self: &Arc<Self>,
        state: State,
        ports: [PortUri; 2],
        sockets: Sockets,
        store: Option<Store>,
    ) -> io::Result<()> {
        let [uplink, downlink] = self.counters.each_ref().map(|published| published.as_fd());
        let [n3, n6] = [&self.n3, &self.n6].map(|interface| interface.neighbours.as_fd());
        let memory = [self.accounts.as_fd(), uplink, downlink, n3, n6];
        let memory = memory.map(|of| of.try_clone_to_owned()).into_iter();
        let memory = memory.collect::<io::Result<_>>()?;
        let leaving = Arc::new(Leaving { state, sockets, memory, ports });
        // It is called once.
        let _ = self.leaving.set(leaving.clone());
        let Some(store) = store else { return Ok(()) };
        let (recorder, woken) = Recorder::new(PROGRAM, store);
        let _ = self.recorder.set(recorder.clone());
        lock(&self.model).record_by(SessionRecorder::new(recorder.clone(), leaving));
        for link in self.ends.iter().filter_map(|end| end.link.as_ref()) {
            link.on_change(recorder.notifier());
        }
        recorder.start(self, woken)
    }

    /// Hands over to another process. First, changes of sessions wait, control threads stop, and
    /// the other process receives the pages, while packets are forwarded. Once it is ready,
    /// data threads pause, and this process calls `end` and ends. If anything fails, this
    /// process continues.
    ///
    /// # Errors
    /// Returns the reason of a failure.
    pub(crate) fn hand_over(
        &self,
        outgoing: &Outgoing,
        end: impl FnOnce(),
    ) -> Result<Infallible, String> {
        let leaving = self.leaving.get().ok_or("it has not started yet")?;
        let model = lock(&self.model);
        let _recording = self.recorder.get().map(|recorder| recorder.recording());
        let mut held = freeze_all(["n3", "n6"].into_iter().zip(&self.ends))?;
        let lives: Vec<PortSnapshot> = held.iter_mut().map(PausedPort::take_snapshot).collect();
        let journal = model.journal().map_err(|error| error.to_string())?;
        let mut pages = vec![leaving.page(journal.as_fd())];
        let ports = (0..).zip(leaving.ports.iter().zip(&lives));
        pages.extend(ports.map(|(at, (uri, live))| Page::of_port(&PROGRAM, at, uri, live, None)));
        outgoing.offer(&pages)?;
        let _transmits = lock(&self.transmits);
        self.control.pause(self.threads().count(), || ())?;
        outgoing.complete(end).inspect_err(|_| self.control.resume())
    }

    /// Ends this process by `end` so that the next one continues it from the store: once data
    /// threads have paused and control threads have stopped.
    pub fn leave(&self, end: impl FnOnce()) {
        let _model = lock(&self.model);
        let _transmits = lock(&self.transmits);
        // Threads that have ended use no port.
        let _ = self.control.pause(self.threads().count(), || ());
        self.record_changed(true, end);
    }

    /// Records the ports that have changed; returns false if one is busy or could not be stored. If
    /// these are the last pages (`is_last`), control threads are stopped during `then`.
    fn record_changed(&self, is_last: bool, then: impl FnOnce()) -> bool {
        let (Some(leaving), Some(recorder)) = (self.leaving.get(), self.recorder.get()) else {
            return true;
        };
        let mut recording = recorder.recording();
        let timeout = if is_last { RecordTimeout::leaving() } else { RecordTimeout::RUNNING };
        let (mut is_complete, mut held) = (true, Vec::new());
        for (number, (uri, end)) in (0..).zip(leaving.ports.iter().zip(&self.ends)) {
            if recording.is_due(number, end, |_| true) {
                match recording.record_port(number, uri.clone(), end, None, timeout) {
                    Ok(port) => held.extend(port.filter(|_| is_last)),
                    Err(Unrecorded::Busy | Unrecorded::NotStored) => is_complete = false,
                }
            } else if is_last {
                held.extend(end.freeze_for_record(timeout).and_then(Result::ok));
            }
        }
        then();
        is_complete
    }
}

impl Recorded for Upf {
    type Port = PortUri;

    fn record_ports(&self, _: &Recorder) -> bool {
        self.record_changed(false, || ())
    }

    /// Records sessions if they could not be recorded before; skipped while sessions are being
    /// changed.
    fn record_state(&self, _: &Recorder, _: bool) -> bool {
        if let Ok(mut model) = self.model.try_lock() {
            model.record_again();
        }
        true
    }
}
