//! The state of a running switch, recorded in the supervisor's store for the next process: after a
//! crash, or an order to end, that process continues the switch as at a [take-over](crate::takeover).
//!
//! Each port has a page, which is kept again whenever the port changes, and a page has the rest: the
//! first of it is kept when all ports have theirs. Control threads cause this, and a thread of the
//! recorder does it; workers know nothing of it. A client's order is confirmed once it is recorded.
//! A page of a port is valid until the next change of the port, so that a crash between a change and
//! its page is found out: that port's peer connects anew.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, mpsc};
use std::time::{Duration, Instant};

use dray_daemon::{Hello, Kept, Page, Store};
use dray_datapath::lock;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::config::{Name, PortConfig};
use crate::engine::{PortStats, TableEntry};
use crate::path::Switch;
use crate::takeover::{Offer, OfferedPort, Succession, TakeoverError, hello, to_json};

/// Pause after changes were recorded: a peer must not keep the recorder busy.
const PAUSE: Duration = Duration::from_millis(2);
/// Interval at which new stations are looked for, and the share of the time that this may take.
const STATIONS: Duration = Duration::from_secs(1);
const STATIONS_SHARE: u32 = 50;
/// Limit of the time for which an order waits until it is recorded.
const CONFIRMING: Duration = Duration::from_secs(1);
/// Time after which the ages of stations are recorded again.
const AGES: Duration = Duration::from_secs(60);

/// Text of a page.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
enum Record {
    /// A port, and its place among the others.
    Port(u64, Box<OfferedPort>),
    State(State),
}

/// State of a switch, apart from its ports.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct State {
    /// True if the second descriptor is that of the socket for metrics, after the control socket.
    pub(crate) has_metrics: bool,
    /// Time of the record, on the machine's monotonic clock.
    pub(crate) at_s: f64,
    /// True if the switch has ended by an order.
    pub(crate) has_ended: bool,
    /// All ports, in order.
    pub(crate) ports: Vec<PortConfig>,
    /// Names of the ports of the configuration, and of those of the command line among them.
    pub(crate) configured: Vec<Name>,
    pub(crate) given: Vec<Name>,
    pub(crate) stations: Vec<TableEntry>,
    pub(crate) uptime_s: f64,
    pub(crate) reset: Option<(f64, Vec<PortStats>)>,
}

impl State {
    /// Returns the state of a switch without ports.
    pub(crate) fn now() -> Self {
        Self { at_s: now_s(), ..Self::default() }
    }
}

fn now_s() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Records the state of a switch.
pub struct Recorder {
    recording: Mutex<Recording>,
    /// Number of changes of the state: which ports there are, or the reset of the counters.
    changes: AtomicU64,
    /// Number of those that are recorded.
    recorded: Mutex<u64>,
    has_recorded: Condvar,
    tell: mpsc::SyncSender<()>,
}

/// Records so far.
pub(crate) struct Recording {
    store: Store,
    /// The control socket, and the one for metrics.
    sockets: Vec<OwnedFd>,
    ports: BTreeMap<Name, Recorded>,
    /// Number of ports so far.
    count: u64,
    state: Option<RecordedState>,
    has_warned: bool,
}

/// The record of a port.
struct Recorded {
    config: PortConfig,
    number: u64,
    changes: u64,
    partner: Option<Name>,
    kept: Option<Kept>,
}

struct RecordedState {
    kept: Option<Kept>,
    at: Instant,
    /// Hash of the stations without their ages.
    stations: u64,
}

impl Recorder {
    /// Records the state of `switch` in `store` from now on, with the sockets at which it is reached.
    pub fn start(
        switch: &Arc<Switch>,
        store: Store,
        control: BorrowedFd<'_>,
        metrics: Option<BorrowedFd<'_>>,
    ) -> io::Result<Arc<Self>> {
        let (tell, told) = mpsc::sync_channel(1);
        let sockets = [control].into_iter().chain(metrics);
        let sockets = sockets.map(|socket| socket.try_clone_to_owned());
        let recording = Recording {
            store,
            sockets: sockets.collect::<io::Result<_>>()?,
            ports: BTreeMap::new(),
            count: 0,
            state: None,
            has_warned: false,
        };
        let this = Arc::new(Self {
            recording: Mutex::new(recording),
            changes: AtomicU64::new(1),
            recorded: Mutex::new(0),
            has_recorded: Condvar::new(),
            tell,
        });
        switch.record_by(this.clone());
        let (recorder, switch) = (this.clone(), switch.clone());
        let run = move || recorder.run(&switch, &told);
        std::thread::Builder::new().name("dray-record".to_owned()).spawn(run)?;
        Ok(this)
    }

    fn run(&self, switch: &Switch, told: &mpsc::Receiver<()>) {
        let mut due = Instant::now();
        loop {
            let changes = self.changes.load(Ordering::SeqCst);
            let is_complete = switch.record_ports(self);
            let now = Instant::now();
            let is_changed = *lock(&self.recorded) != changes;
            let mut is_done = is_complete;
            if is_complete && (is_changed || now >= due) {
                is_done = self.recording().record_state(switch.state(), is_changed);
                due = Instant::now() + STATIONS.max(now.elapsed() * STATIONS_SHARE);
            }
            if is_done {
                *lock(&self.recorded) = changes;
                self.has_recorded.notify_all();
            }
            std::thread::sleep(PAUSE);
            let patience = if is_done { STATIONS } else { PAUSE };
            if told.recv_timeout(patience) == Err(mpsc::RecvTimeoutError::Disconnected) {
                return;
            }
        }
    }

    /// Records the last state of `switch` and ends this process by `end`, which must not drop anything:
    /// the next process continues the switch.
    pub fn leave(&self, switch: &Switch, end: fn() -> !) -> ! {
        switch.record_end(self, end)
    }

    /// To be locked after the ports of the switch.
    pub(crate) fn recording(&self) -> MutexGuard<'_, Recording> {
        lock(&self.recording)
    }

    /// Tells the recorder that the state has changed.
    pub(crate) fn tell(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        // It has been told, if there is no room.
        let _ = self.tell.try_send(());
    }

    /// Waits until all changes so far are recorded, if the supervisor is not behind. To be called with
    /// nothing locked.
    pub(crate) fn wait(&self) {
        let changes = self.changes.load(Ordering::SeqCst);
        let recorded = lock(&self.recorded);
        let is_behind = |recorded: &mut u64| *recorded < changes;
        // A thread that has panicked ends the process.
        let _ = self.has_recorded.wait_timeout_while(recorded, CONFIRMING, is_behind);
    }

    /// Returns what tells the recorder that a port has changed.
    pub(crate) fn teller(&self) -> Box<dyn Fn() + Send + Sync> {
        let tell = self.tell.clone();
        Box::new(move || _ = tell.try_send(()))
    }
}

impl Recording {
    /// Returns true if a port is not recorded as it is: if it is new, has changed, or was not kept.
    pub(crate) fn is_due(&self, port: &PortConfig, changes: u64, partner: Option<&Name>) -> bool {
        self.ports.get(&port.name).is_none_or(|recorded| {
            let Recorded { config, changes: before, partner: with, kept, .. } = recorded;
            kept.is_none() || (config, *before, with.as_ref()) != (port, changes, partner)
        })
    }

    /// Records a port. Returns false if it could not be kept, and is due again.
    pub(crate) fn record(&mut self, port: OfferedPort) -> bool {
        let (config, changes) = (port.config.clone(), port.live.changes());
        let partner = port.partner.clone();
        let before = self.ports.remove(&config.name);
        let number = before.as_ref().map_or_else(|| self.count + 1, |before| before.number);
        self.count = self.count.max(number);
        let descriptors: Vec<_> =
            port.descriptors().map(|descriptor| descriptor.try_clone_to_owned()).collect();
        let descriptors = descriptors.into_iter().collect::<io::Result<Vec<_>>>();
        let kept = descriptors.and_then(|descriptors| {
            let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            self.keep(Record::Port(number, port.into()), &descriptors)
        });
        let kept = self.check(kept);
        let is_kept = kept.is_some();
        let recorded = Recorded { config, number, changes, partner, kept };
        self.ports.insert(recorded.config.name.clone(), recorded);
        let before = before.and_then(|before| before.kept);
        before.iter().for_each(|before| self.store.forget(before));
        is_kept
    }

    /// Forgets a port that is about to be closed.
    pub(crate) fn forget(&mut self, name: &Name) {
        if let Some(recorded) = self.ports.remove(name) {
            recorded.kept.iter().for_each(|kept| self.store.forget(kept));
        }
    }

    /// Records the state if it `is_changed`, or its stations are, or if their ages are old. Returns
    /// false if it could not be kept.
    pub(crate) fn record_state(&mut self, mut state: State, is_changed: bool) -> bool {
        let mut hasher = DefaultHasher::new();
        for TableEntry { vlan, mac, port, .. } in &state.stations {
            (vlan, mac.0, port.as_str()).hash(&mut hasher);
        }
        let stations = hasher.finish();
        let is_same = |before: &RecordedState| {
            before.stations == stations && before.at.elapsed() < AGES && !is_changed
        };
        if self.state.as_ref().is_some_and(is_same) {
            return true;
        }
        state.has_metrics = self.sockets.len() > 1;
        let sockets: Vec<_> = self.sockets.iter().map(AsFd::as_fd).collect();
        let kept = self.keep(Record::State(state), &sockets);
        let kept = self.check(kept);
        let is_kept = kept.is_some();
        let now = RecordedState { kept, at: Instant::now(), stations };
        let before = self.state.replace(now).and_then(|before| before.kept);
        before.iter().for_each(|before| self.store.forget(before));
        is_kept
    }

    fn keep(&self, record: Record, descriptors: &[BorrowedFd<'_>]) -> io::Result<Kept> {
        self.store.keep(&to_json(&(hello(), record)), descriptors)
    }

    fn check(&mut self, kept: io::Result<Kept>) -> Option<Kept> {
        let kept = kept.inspect_err(|error| {
            if !std::mem::replace(&mut self.has_warned, true) {
                warn!(%error, "the state is not yet kept for a restart");
            }
        });
        kept.ok()
    }
}

impl Succession {
    /// Continues the switch whose state an earlier process has left in `store`, if there is one.
    pub fn of_store(store: &Store) -> Result<Option<Self>, TakeoverError> {
        let pages = store.take().map_err(TakeoverError)?;
        if pages.is_empty() {
            return Ok(None);
        }
        let (mut ports, mut last) = (BTreeMap::new(), None);
        for Page { text, descriptors, .. } in pages {
            let mut descriptors = descriptors.into_iter();
            match read(&text)? {
                Record::Port(number, mut port) => {
                    port.adopt(&mut descriptors)?;
                    ports.insert(number, *port);
                }
                Record::State(state) => last = Some((state, descriptors)),
            }
        }
        let missing = |what: &str| TakeoverError(format!("the state is incomplete: no {what}"));
        let (state, mut sockets) = last.ok_or_else(|| missing("page of the switch"))?;
        let control = sockets.next().ok_or_else(|| missing("control socket"))?;
        let metrics = state.has_metrics.then(|| sockets.next().ok_or_else(|| missing("socket")));
        let since = (now_s() - state.at_s).max(0.0);
        let aged = |mut station: TableEntry| {
            station.age_s = station.age_s.saturating_add(since as u32);
            station
        };
        let offer = Offer {
            settings: String::new(),
            ports: all(state.ports, ports.into_values()),
            configured: state.configured,
            given: state.given,
            stations: state.stations.into_iter().map(aged).collect(),
            uptime_s: state.uptime_s + since,
            reset: state.reset.map(|(seconds, stats)| (seconds + since, stats)),
        };
        Ok(Some(Self::of_ended(offer, control, metrics.transpose()?, !state.has_ended)))
    }
}

/// Returns all ports, first `listed` in order. Those without a page, such as the last one that was
/// added before a crash, can only be opened again.
fn all(listed: Vec<PortConfig>, pages: impl Iterator<Item = OfferedPort>) -> Vec<OfferedPort> {
    let pages: Vec<_> = pages.collect();
    let names: Vec<_> = pages.iter().map(|page| page.config.name.clone()).collect();
    let mut by_name: HashMap<_, _> = names.iter().zip(pages).collect();
    let listed = listed
        .into_iter()
        .map(|config| by_name.remove(&config.name).unwrap_or_else(|| OfferedPort::closed(config)));
    let mut ports: Vec<_> = listed.collect();
    ports.extend(names.iter().filter_map(|name| by_name.remove(name)));
    ports
}

/// Reads the text of a page.
fn read(text: &[u8]) -> Result<Record, TakeoverError> {
    let wrong = |error| TakeoverError(format!("invalid state of the switch before: {error}"));
    let (before, record): (Hello, serde_json::Value) =
        serde_json::from_slice(text).map_err(wrong)?;
    if let Some(what) = hello().cannot_read("switch", &before) {
        return Err(TakeoverError(what));
    }
    serde_json::from_value(record).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn state_is_read_as_written() {
        let ports = vec!["a=null:".parse().unwrap()];
        let state = State { ports, uptime_s: 7.5, ..State::now() };
        let text = to_json(&(hello(), Record::State(state)));
        let Ok(Record::State(state)) = read(&text) else { panic!("no state") };
        assert_eq!((state.uptime_s, state.ports.len(), state.has_ended), (7.5, 1, false));
    }

    proptest! {
        #[test]
        fn changed_text_neither_panics_nor_has_another_format(
            at: prop::sample::Index,
            byte: u8,
            cut: prop::sample::Index,
        ) {
            let port = OfferedPort::closed("a=vhost:/a,vlan=7".parse().unwrap());
            let mut text = to_json(&(hello(), Record::Port(3, port.into())));
            let length = text.len();
            text[at.index(length)] = byte;
            let _ = read(&text);
            text.truncate(cut.index(length));
            prop_assert!(read(&text).is_err());
        }
    }
}
