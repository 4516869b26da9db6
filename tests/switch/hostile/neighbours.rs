//! Two well-behaved ports that exchange numbered frames while the peers of other ports violate the
//! protocol.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use dray_port::PortUri;
use dray_traffic::receiver::Receiver;
use dray_traffic::sender::Sender;
use dray_traffic::{Check, Output, ReceiveJob, ReceiveReport, SendJob, SendReport, Signal};
use dray_wire::Flow;

use super::wait_until;

/// Frames per second: enough that frames are in flight at every moment, and few enough for a busy
/// machine.
const RATE: f64 = 10_000.0;

pub struct Neighbours {
    /// The sender keeps its port open: closing it would drop the frames in its ring.
    sending: (Signal, JoinHandle<(SendReport, Sender)>),
    receiving: (Signal, JoinHandle<ReceiveReport>),
    received: Arc<AtomicU64>,
}

impl Neighbours {
    /// Connects to the sockets of two paired ports and starts the exchange.
    pub fn start(from: &Path, to: &Path) -> Self {
        let uri = |path: &Path| -> PortUri {
            format!("virtio:{}?hugepages=0", path.display()).parse().expect("a URI")
        };
        let interval = Duration::from_millis(5);
        let receive = ReceiveJob {
            ports: vec![uri(to)],
            announce: Vec::new(),
            stations: 0,
            check: Check::Whole,
            tunnelled: false,
            timed: None,
            count: None,
            yielding: true,
            interval,
        };
        let mut receiver = Receiver::open(&receive, &PortUri::open).expect("a port");
        let send = SendJob {
            outputs: vec![Output { port: uri(from), flow: Flow::default() }],
            flows: 4,
            stations: 1,
            size: 300,
            users: None,
            burst: 8,
            rate: Some(RATE),
            count: None,
            duration: Duration::from_secs(24 * 3600),
            turn: Some(SendJob::TURN),
            timed: None,
            interval,
        };
        let mut sender = Sender::open(send, &PortUri::open).expect("a port");
        let received = Arc::<AtomicU64>::default();
        let count = received.clone();
        let on_sample = Box::new(move |_: &_, sample: &dray_traffic::Sample, _: &_| {
            count.store(sample.frames, Ordering::Relaxed);
        });
        let (send, receive) = (Signal::default(), Signal::default());
        let (stop_sending, stop_receiving) = (send.clone(), receive.clone());
        Self {
            sending: (
                send,
                std::thread::spawn(move || {
                    let report = sender.run(&stop_sending, None).expect("a sender");
                    (report, sender)
                }),
            ),
            receiving: (
                receive,
                std::thread::spawn(move || {
                    receiver.run(&stop_receiving, Some(on_sample)).expect("a receiver")
                }),
            ),
            received,
        }
    }

    /// Returns true if another hundred frames arrive.
    pub fn go_on(&self) -> bool {
        let before = self.received();
        wait_until(|| self.received() >= before + 100)
    }

    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Stops the exchange. Returns the number of frames, or what went wrong.
    pub fn finish(self) -> Result<u64, String> {
        let (signal, thread) = self.sending;
        signal.stop();
        let (report, sender) = thread.join().expect("the sender");
        let sent = report.sent;
        // Sent frames may still be in a ring, if a worker is busy.
        wait_until(|| self.received.load(Ordering::Relaxed) >= sent);
        drop(sender);
        let (signal, thread) = self.receiving;
        signal.drain();
        let report = thread.join().expect("the receiver");
        let ReceiveReport { received, lost, duplicated, reordered, corrupt, foreign, .. } = report;
        if (received, lost, duplicated, reordered, corrupt, foreign) == (sent, 0, 0, 0, 0, 0) {
            return Ok(sent);
        }
        Err(format!(
            "of {sent} frames {received} arrived: {lost} lost, {duplicated} duplicated, \
             {reordered} reordered, {corrupt} corrupt, {foreign} foreign"
        ))
    }
}
