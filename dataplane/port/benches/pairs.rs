//! `cargo bench -p dray-port`: cost per frame of each half of a port in shared memory, in one
//! thread that is at both ends of one socket, so that nothing has to come from another CPU's cache.

use std::time::Duration;

use dray_port::{BATCH_MAX, Frame, Port, PortUri, clock};

/// Number of batches that are timed together, and how often; the fastest time counts.
const BATCHES: usize = 200;
const TIMES: usize = 200;

fn main() {
    println!("size  ring    virtio tx  vhost rx  vhost tx  virtio rx   ns per frame");
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("socket");
    for size in [64, 1500] {
        for (name, packed) in [("split", 0), ("packed", 1)] {
            let open = |uri: String| -> Port {
                uri.parse::<PortUri>().expect("a short path").open().expect("memory")
            };
            let mut back = open(format!("vhost:{}?wait=poll", path.display()));
            let mut front = open(format!("virtio:{}?packed={packed}&wait=poll", path.display()));
            let bytes = vec![0x5a; size];
            let frames = vec![Frame::from(&bytes[..]); BATCH_MAX];
            for port in [&mut front, &mut back] {
                while !port.tx[0].is_ready() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            let mut least = [u64::MAX; 4];
            for _ in 0..TIMES {
                let mut spent = [0; 4];
                for _ in 0..BATCHES {
                    let [virtio_tx, vhost_rx] = pass(&mut front, &mut back, &frames);
                    let [vhost_tx, virtio_rx] = pass(&mut back, &mut front, &frames);
                    let took = [virtio_tx, vhost_rx, vhost_tx, virtio_rx];
                    spent.iter_mut().zip(took).for_each(|(spent, took)| *spent += took);
                }
                least.iter_mut().zip(spent).for_each(|(least, spent)| *least = spent.min(*least));
            }
            let [a, b, c, d] = least.map(|ticks| {
                let seconds = ticks as f64 / clock::ticks_per_second() as f64;
                seconds * 1e9 / (BATCHES * BATCH_MAX) as f64
            });
            println!("{size:4}  {name:6}  {a:9.2}  {b:8.2}  {c:8.2}  {d:9.2}");
        }
    }
}

/// Passes a batch on; returns the ticks that sending and receiving it took.
fn pass(from: &mut Port, to: &mut Port, frames: &[Frame<'_>]) -> [u64; 2] {
    let start = clock::ticks();
    let sent = from.tx[0].transmit(frames).expect("shared memory");
    let between = clock::ticks();
    let received = to.rx[0].receive(&mut |lent| lent.len()).expect("shared memory");
    let end = clock::ticks();
    assert_eq!((sent, received), (frames.len(), frames.len()), "an empty ring has room");
    [between - start, end - between]
}
