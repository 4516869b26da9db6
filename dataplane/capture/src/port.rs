//! A port whose frames captures see, for programs with one data thread.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use dray_port::{Fill, Frame, Lost, Port, Receive, Take, Transmit, Wait};
use dray_wire::offload::Offloads;

use crate::record::Kind;
use crate::tap::Tap;

/// Half of a port, whose frames `tap` shows as those of the port of this number.
struct Tapped<H> {
    half: H,
    tap: Arc<Tap>,
    number: u16,
}

/// Returns `port` with its frames shown by `tap`, under the `number` that
/// [`Captures`](crate::Captures) has assigned. Only one thread may use the halves of ports with the
/// same tap.
pub fn tapped(port: Port, tap: &Arc<Tap>, number: u16) -> Port {
    let Port { rx, tx, link } = port;
    let rx =
        rx.into_iter().map(|half| Box::new(Tapped { half, tap: tap.clone(), number }) as Box<_>);
    let tx =
        tx.into_iter().map(|half| Box::new(Tapped { half, tap: tap.clone(), number }) as Box<_>);
    Port { rx: rx.collect(), tx: tx.collect(), link }
}

impl Receive for Tapped<Box<dyn Receive>> {
    fn receive(&mut self, take: &mut Take<'_>) -> io::Result<usize> {
        let Self { half, tap, number } = self;
        if !tap.is_on() {
            return half.receive(take);
        }
        half.receive(&mut |frames| {
            let taken = take(frames);
            // The other frames are lent again.
            tap.show(*number, Kind::In, &frames[..taken]);
            taken
        })
    }

    fn refused(&self) -> u64 {
        self.half.refused()
    }

    fn missed(&self) -> io::Result<u64> {
        self.half.missed()
    }

    fn fill(&self) -> Option<Fill> {
        self.half.fill()
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        self.half.event()
    }

    fn devices(&self) -> Vec<BorrowedFd<'_>> {
        self.half.devices()
    }

    fn drain(&mut self, on: bool) -> bool {
        self.half.drain(on)
    }

    fn arm(&mut self, on: bool) -> bool {
        self.half.arm(on)
    }

    fn set_wait(&mut self, wait: Wait) {
        self.half.set_wait(wait);
    }
}

impl Transmit for Tapped<Box<dyn Transmit>> {
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        let Self { half, tap, number } = self;
        let taken = half.transmit(frames)?;
        if tap.is_on() {
            half.lost().each_run(&frames[..taken], |frames, lost| {
                if lost.is_none() {
                    tap.show(*number, Kind::Out, frames);
                }
            });
        }
        Ok(taken)
    }

    fn frame_max(&self) -> usize {
        self.half.frame_max()
    }

    fn never_wait(&mut self) {
        self.half.never_wait();
    }

    fn is_ready(&self) -> bool {
        self.half.is_ready()
    }

    fn pending(&mut self) -> usize {
        self.half.pending()
    }

    fn lost(&self) -> &Lost {
        self.half.lost()
    }

    fn fill(&self) -> Option<Fill> {
        self.half.fill()
    }

    fn offloads(&self) -> Offloads {
        self.half.offloads()
    }

    fn accepts(&self, frame: &Frame<'_>) -> bool {
        self.half.accepts(frame)
    }
}
