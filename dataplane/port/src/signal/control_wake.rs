//! The event that wakes a port's control thread, and the signals that it sends for data threads.
//!
//! A data thread signals a peer itself as long as that is fast. A peer can make it slow: a hundred
//! thousand epoll watchers on its eventfd are all woken inside the system call that signals it.
//! After slow signals the data thread delegates further signals to the port's control thread. Each
//! port has its own control thread, so a slow peer delays only its own signals. Peers whose signals
//! are very slow share one limit, and delay each other's.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::lock::lock;
use crate::signal::aio::{self, Signal};
use crate::signal::event::{Event, Shared};

/// A signal that takes a data thread longer than this, in nanoseconds, is slow. Most take one to
/// five microseconds, and 15 where asynchronous I/O is missing.
const SLOW: u64 = 20_000;
/// Number of slow signals in a row after which the control thread sends the next ones. An honest
/// peer's signal can be slow once or twice, on a machine that is busy.
const IN_A_ROW: u32 = 3;
/// A signal that takes a data thread longer than this, in nanoseconds, is certainly slow.
const TOO_SLOW: u64 = 5 * SLOW;
/// After a slow signal the control thread sends the signals, for this many times as long as the
/// slow one took: slow signals take at most a thousandth of a data thread's time.
const DELEGATED: u64 = 1000;
/// Maximum time for which the control thread sends the signals, in nanoseconds.
const DELEGATED_MAX: u64 = 60_000_000_000;
/// Pause of the control thread after a slow signal, as a multiple of the time that the signal took:
/// a slow peer costs at most a tenth of a CPU.
const PAUSE: u64 = 9;
/// A signal that takes longer than this, in nanoseconds, is very slow. No honest peer causes one.
const VERY_SLOW: u64 = 1_000_000;
/// Pause after a very slow signal, as a multiple of the time that the signal took: all peers that
/// cause such signals cost at most half a percent of a CPU together. The kernel sends a signal with
/// interrupts disabled, so everything else on that CPU waits as well.
const LONG_PAUSE: u64 = 199;
/// Time before which no very slow signal is sent, in nanoseconds of the monotonic clock.
static VERY_SLOW_PAUSE_UNTIL: AtomicU64 = AtomicU64::new(0);
/// Duration of a signal that the peer delayed, in nanoseconds.
const DELAYED: u64 = aio::PATIENCE.as_nanos() as u64;
/// Time after which the control thread tries again if the user's timers are exhausted
/// (`ulimit -i`).
const NO_TIMER: Duration = Duration::from_millis(10);

/// The event that wakes a port's control thread.
#[derive(Debug)]
pub(crate) struct ControlWake {
    event: Event,
    /// Number of slow signals in a row. While it is not zero, signals are timed by the CPU time
    /// that they take, because preemption of the data thread is not the peer's fault; the
    /// first slow signal was timed by the clock, so it may have been a preemption.
    slow_in_a_row: AtomicU32,
    /// Time until which the control thread sends the signals, in nanoseconds of the monotonic
    /// clock.
    delegated_until: AtomicU64,
    /// Time until which the control thread pauses.
    paused_until: AtomicU64,
    /// True if the last signal sent by the control thread was very slow.
    very_slow: AtomicBool,
    /// All events of peers; those that were closed are removed when the next one is registered.
    /// Data threads do not use this list.
    events: Mutex<Vec<Weak<Shared>>>,
}

impl ControlWake {
    pub(crate) fn new() -> std::io::Result<Arc<Self>> {
        // Before a peer can connect and exhaust the machine's limit.
        aio::prepare();
        Self::without_aio().map(Arc::new)
    }

    fn without_aio() -> std::io::Result<Self> {
        Ok(Self {
            event: Event::new()?,
            slow_in_a_row: AtomicU32::new(0),
            delegated_until: AtomicU64::new(0),
            paused_until: AtomicU64::new(0),
            very_slow: AtomicBool::new(false),
            events: Mutex::default(),
        })
    }

    /// Wakes the control thread.
    pub(crate) fn signal(&self) {
        self.event.signal();
    }

    /// For the control thread: resets the event after a wake-up.
    pub(crate) fn clear(&self) {
        self.event.clear();
    }

    /// Registers an event whose delegated signals the control thread sends.
    pub(super) fn register(&self, event: &Arc<Shared>) {
        let mut events = lock(&self.events);
        events.retain(|event| event.strong_count() > 0);
        events.push(Arc::downgrade(event));
    }

    /// For a data thread: signals `event`, or delegates that to the control thread.
    #[inline]
    pub(super) fn signal_peer(&self, event: &Shared) {
        let start = now();
        if start < self.delegated_until.load(Ordering::Relaxed) {
            return self.delegate_signal(event);
        }
        let cpu_time = (self.slow_in_a_row.load(Ordering::Relaxed) > 0).then(cpu_time);
        match aio::signal(event.as_fd()) {
            Signal::Sent => {}
            Signal::Delayed => return self.delegate(DELAYED),
            Signal::Unsent => return self.delegate_signal(event),
        }
        let seems_slow = now() - start > SLOW;
        if seems_slow || cpu_time.is_some() {
            self.record(seems_slow, cpu_time.map(|before| self::cpu_time() - before));
        }
    }

    #[cold]
    fn delegate_signal(&self, event: &Shared) {
        if !event.pending.swap(true, Ordering::AcqRel) {
            self.signal();
        }
    }

    /// Records a signal that may have been slow, and the CPU time that it took if that is known.
    #[cold]
    fn record(&self, seems_slow: bool, cpu_time: Option<u64>) {
        let slow = cpu_time.filter(|time| *time > SLOW);
        let in_a_row = match slow {
            Some(_) => self.slow_in_a_row.load(Ordering::Relaxed).saturating_add(1),
            None => u32::from(seems_slow),
        };
        self.slow_in_a_row.store(in_a_row, Ordering::Relaxed);
        if let Some(time) = slow.filter(|time| in_a_row >= IN_A_ROW || *time > TOO_SLOW) {
            self.delegate(time);
        }
    }

    fn delegate(&self, slow: u64) {
        let until = now() + slow.saturating_mul(DELEGATED).min(DELEGATED_MAX);
        self.delegated_until.store(until, Ordering::Relaxed);
    }

    /// For the control thread: sends the delegated signals. Returns the time after which this must
    /// be called again, if the control thread has to pause.
    pub(crate) fn deliver(&self) -> Option<Duration> {
        let pending = || -> Vec<Arc<Shared>> {
            let events = lock(&self.events);
            let alive = events.iter().filter_map(Weak::upgrade);
            alive.filter(|event| event.pending.load(Ordering::Acquire)).collect()
        };
        for event in pending() {
            let pause = self.paused_until().saturating_sub(now());
            if pause > 0 {
                return Some(Duration::from_nanos(pause));
            }
            event.pending.store(false, Ordering::Release);
            let before = cpu_time();
            match aio::signal(event.as_fd()) {
                Signal::Sent => self.pause_after(cpu_time() - before),
                Signal::Delayed => self.delegate(DELAYED),
                Signal::Unsent => {
                    event.pending.store(true, Ordering::Release);
                    return Some(NO_TIMER);
                }
            }
        }
        None
    }

    fn paused_until(&self) -> u64 {
        let own = self.paused_until.load(Ordering::Relaxed);
        match self.very_slow.load(Ordering::Relaxed) {
            true => own.max(VERY_SLOW_PAUSE_UNTIL.load(Ordering::Relaxed)),
            false => own,
        }
    }

    /// Starts the pause after a signal by the control thread that took `took` nanoseconds.
    fn pause_after(&self, took: u64) {
        self.very_slow.store(took > VERY_SLOW, Ordering::Relaxed);
        if took > VERY_SLOW {
            VERY_SLOW_PAUSE_UNTIL.fetch_max(now() + LONG_PAUSE * took, Ordering::Relaxed);
        }
        if took > SLOW {
            // The peer is still slow, so the data thread continues to delegate.
            self.delegate(took);
            self.paused_until.store(now() + PAUSE * took, Ordering::Relaxed);
        }
    }
}

impl AsFd for ControlWake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Returns nanoseconds of the monotonic clock.
#[inline]
fn now() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Returns the nanoseconds of CPU time that this thread has used.
fn cpu_time() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

#[inline]
fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::peer_event::PeerEvent;
    use rustix::event::{EventfdFlags, epoll, eventfd};
    use rustix::io::fcntl_dupfd_cloexec;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::sync::mpsc;

    /// Creates epolls that watch `event` `count` times in all. An epoll watches a file once per
    /// descriptor number, and keeps watching when the descriptor is closed.
    fn watchers(event: BorrowedFd<'_>, count: usize) -> Vec<OwnedFd> {
        const EACH: i32 = 1000;
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
        let epolls = count.div_ceil(EACH as usize);
        let epolls: Vec<_> =
            (0..epolls).map(|_| epoll::create(epoll::CreateFlags::CLOEXEC).unwrap()).collect();
        for number in 0..EACH {
            let copy = fcntl_dupfd_cloexec(event, 3000 + number).unwrap();
            for epoll in &epolls {
                let (data, flags) = (epoll::EventData::new_u64(0), epoll::EventFlags::IN);
                // A number that another test uses at the same time can come twice.
                let _ = epoll::add(epoll, &copy, data, flags | epoll::EventFlags::ET);
            }
        }
        epolls
    }

    fn peer_event(flags: EventfdFlags) -> (Arc<ControlWake>, PeerEvent, OwnedFd) {
        let wake = ControlWake::new().unwrap();
        let event = eventfd(0, EventfdFlags::CLOEXEC | flags).unwrap();
        let ours = PeerEvent::from_peer(event.try_clone().unwrap(), &wake).unwrap();
        (wake, ours, event)
    }

    fn count(event: &OwnedFd) -> u64 {
        let mut value = [0; 8];
        match rustix::io::read(event, &mut value) {
            Ok(_) => u64::from_ne_bytes(value),
            Err(_) => 0,
        }
    }

    #[test]
    fn slow_signals_move_to_control_thread() {
        let (wake, ours, event) = peer_event(EventfdFlags::NONBLOCK);
        let epolls = watchers(event.as_fd(), 50_000);
        // One signal that seems slow, then one that is too slow, or two that are slow; time lost to
        // a preemption in between does not count.
        let sent = (1..=10).find(|_| {
            ours.signal();
            now() < wake.delegated_until.load(Ordering::Relaxed)
        });
        let sent = sent.expect("a signal to 50,000 watchers is slow");
        (0..1000).for_each(|_| ours.signal());
        assert_eq!(count(&event), sent, "the data thread sends no further signals");
        wake.deliver();
        assert_eq!(count(&event), 1, "owed signals are merged into one");
        assert!(wake.deliver().is_none(), "nothing is owed");
        assert!(wake.paused_until() > 0, "a slow signal is followed by a rest");
        // On a busy machine the rest may already be over.
        wake.paused_until.store(now() + DELEGATED_MAX, Ordering::Relaxed);
        ours.signal();
        assert!(wake.deliver().is_some(), "the control thread rests");
        assert_eq!(count(&event), 0);
        drop(epolls);
    }

    #[test]
    fn signals_move_after_three_slow_ones_or_one_too_slow() {
        let moves_after = |signals: &[(bool, Option<u64>)]| {
            let wake = ControlWake::without_aio().unwrap();
            signals.iter().for_each(|(seems_slow, time)| wake.record(*seems_slow, *time));
            wake.delegated_until.load(Ordering::Relaxed) > 0
        };
        let (seems, slow, quick) = ((true, None), (true, Some(SLOW + 1)), (false, Some(SLOW)));
        assert!(!moves_after(&[seems, slow]));
        assert!(moves_after(&[seems, slow, slow]));
        assert!(!moves_after(&[seems, slow, quick, seems, slow]));
        assert!(!moves_after(&[seems, (true, Some(SLOW)), slow]), "it only seemed slow");
        assert!(moves_after(&[seems, (true, Some(TOO_SLOW + 1))]));
    }

    #[test]
    fn slow_peer_does_not_delay_other_signals() {
        let (slow, ours, event) = peer_event(EventfdFlags::NONBLOCK);
        slow.delegate(DELEGATED_MAX);
        for _ in 0..10 {
            // On a busy machine a quick peer's signals may be slow as well, but not its first one.
            let (_quick, other, others) = peer_event(EventfdFlags::NONBLOCK);
            ours.signal();
            other.signal();
            assert_eq!((count(&event), count(&others)), (0, 1));
        }
    }

    /// As on a machine without asynchronous I/O.
    #[test]
    fn full_eventfd_does_not_block_without_aio() {
        let (wake, ours, event) = peer_event(EventfdFlags::empty());
        wake.delegate(DELEGATED_MAX);
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        let (done, wait) = mpsc::channel();
        let filler = event.try_clone().unwrap();
        std::thread::spawn(move || {
            for _ in 0..100 {
                ours.signal();
                let _ = aio::write_in_time(ours.as_fd());
            }
            done.send(()).unwrap();
        });
        let end = std::time::Instant::now() + Duration::from_secs(20);
        let ended = loop {
            // Drained and filled again: the counter has room when it is checked, none when it is
            // written.
            let nowait = rustix::io::ReadWriteFlags::NOWAIT;
            let buffer = &mut [0; 8];
            let mut buffers = [std::io::IoSliceMut::new(buffer)];
            let _ = rustix::io::preadv2(&filler, &mut buffers, u64::MAX, nowait);
            if wait.recv_timeout(Duration::from_micros(50)).is_ok() {
                break true;
            }
            let _ = aio::write_in_time(filler.as_fd());
            if std::time::Instant::now() > end {
                break false;
            }
        };
        assert!(ended, "an owed signal does not wait for the peer");
    }

    #[test]
    fn owed_signal_survives_missing_timer() {
        // A separate process, which has no context for asynchronous I/O and its own limit.
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "signal::control_wake::tests::owed_signal_without_timers",
                "--ignored",
                "--nocapture",
            ])
            .output()
            .unwrap();
        let output = [output.stdout, output.stderr].concat();
        let output = String::from_utf8_lossy(&output);
        assert!(output.contains("1 passed"), "{output}");
    }

    #[test]
    #[ignore = "run by another test, in a process of its own"]
    fn owed_signal_without_timers() {
        let wake = Arc::new(ControlWake::without_aio().unwrap());
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let ours = PeerEvent::from_peer(event.try_clone().unwrap(), &wake).unwrap();
        let limit = getrlimit(Resource::Sigpending);
        setrlimit(Resource::Sigpending, Rlimit { current: Some(0), ..limit }).unwrap();
        ours.signal();
        assert_eq!((wake.deliver(), count(&event)), (Some(NO_TIMER), 0));
        setrlimit(Resource::Sigpending, limit).unwrap();
        assert_eq!((wake.deliver(), count(&event)), (None, 1));
    }

    #[test]
    fn semaphore_eventfd_works_like_others() {
        let (wake, ours, event) = peer_event(EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE);
        (0..3).for_each(|_| ours.signal());
        assert_eq!((0..5).map(|_| count(&event)).sum::<u64>(), 3);
        assert!(wake.deliver().is_none());
    }

    /// `cargo test --release -p dray-port watchers -- --ignored --nocapture`.
    #[test]
    #[ignore = "prints figures"]
    fn cost_of_eventfd_watchers() {
        for number in [0, 1000, 10_000, 100_000] {
            let (_attention, _ours, event) = peer_event(EventfdFlags::NONBLOCK);
            let epolls = watchers(event.as_fd(), number);
            let mut times: Vec<_> = (0..20)
                .map(|_| {
                    let start = now();
                    assert_eq!(aio::signal(event.as_fd()), Signal::Sent);
                    now() - start
                })
                .collect();
            times.sort_unstable();
            println!("{number} watchers: a signal takes {} us", times[10] as f64 / 1e3);
            println!("  descriptor {}, {} epolls", event.as_raw_fd(), epolls.len());
            let start = now();
            drop((event, _ours));
            println!("  closing takes {} us", (now() - start) as f64 / 1e3);
        }
    }
}
