//! A device that goes on after another one was killed, in the middle of anything: the driver gets
//! back every buffer once and in order, and nothing that may have been used is read again.

use std::collections::VecDeque;
use std::sync::Arc;

use dray_ring::packed::PackedLayout;
use dray_ring::split::SplitLayout;
use dray_ring::{
    Access, Buffer, Chain, DeviceQueue, DriverQueue, Plain, Progress, QueueSize, RingError,
};
use dray_shm::SharedWords;
use proptest::prelude::*;

use crate::memory::{DATA, Layout, Memory, RING};

/// A batch of a device.
#[derive(Clone, Copy, Debug)]
struct Batch {
    /// Number of chains, and of buffers of each.
    chains: u16,
    buffers: u16,
    /// Chains that are used and returned; the rest is put back.
    taken: u16,
    /// True to return all chains together.
    together: bool,
}

fn batches() -> impl Strategy<Value = Vec<Batch>> {
    let batch = (0..9u16, 1..4u16, 0..9u16, any::<bool>())
        .prop_map(|(chains, buffers, taken, together)| Batch { chains, buffers, taken, together });
    prop::collection::vec(batch, 1..20)
}

/// The step at which a device is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Popped,
    /// Before the first chain was used.
    Committed,
    Used,
    /// Before the first chain was returned, after what was noted for that.
    Noted,
    /// After the first of several chains was returned.
    SomeReturned,
    Returned,
    Published,
}

const STEPS: [Step; 7] = [
    Step::Popped,
    Step::Committed,
    Step::Used,
    Step::Noted,
    Step::SomeReturned,
    Step::Returned,
    Step::Published,
];

/// Number of entries of the rings.
const SIZE: u16 = 16;

struct Run<L: Layout> {
    memory: Memory,
    layout: L,
    words: Arc<SharedWords>,
    driver: L::Driver,
    device: Option<L::Device>,
    /// Identities that the driver has posted, and what it has in their buffers.
    posted: VecDeque<(u16, u64)>,
    next: u64,
    /// Contents that a device has used.
    used: Vec<u64>,
}

impl<L: Layout> Run<L> {
    fn new(access: Access) -> Self {
        let (memory, layout) = Memory::new::<L>(QueueSize::new(SIZE.into()).unwrap(), access);
        let words = Arc::new(SharedWords::create("test", 1).unwrap());
        let mut device = layout.device(if L::PACKED { 0x8000 } else { 0 }, false, false);
        device.publish_progress(words.word(0));
        let (driver, device) = (layout.driver(false), Some(device));
        let (posted, used) = (VecDeque::new(), Vec::new());
        Self { memory, layout, words, driver, device, posted, next: 0, used }
    }

    /// Posts chains of `buffers` buffers, each with a number of its own, as many as fit.
    fn post(&mut self, buffers: u16) {
        loop {
            let address = DATA + self.next % 1000 * 64;
            let chain: Vec<_> = (0..u64::from(buffers))
                .map(|at| Buffer { address: address + at * 8, len: 8, access: self.memory.access })
                .collect();
            let Some(id) = self.driver.post(&chain) else { break };
            self.memory.write(address, self.next.to_le_bytes());
            self.posted.push_back((id, self.next));
            self.next += 1;
        }
        self.driver.publish();
    }

    /// Takes back what the device has returned, which must be in order.
    fn poll(&mut self) {
        while let Some(back) = self.driver.poll().expect("no error") {
            let (id, _) = self.posted.pop_front().expect("nothing else is posted");
            assert_eq!(back.id, id);
        }
    }

    fn use_chain(&mut self, chain: &Chain) {
        // SAFETY: the buffer has eight bytes.
        let number = unsafe { chain.first.start.cast::<u64>().read_volatile() };
        // Buffers of the driver that have been filled, and not shown to it, are filled again.
        let is_new = self.used.last().is_none_or(|last| *last < number);
        assert!(is_new || self.memory.access == Access::Write, "{number} is used again");
        self.used.push(number);
    }

    /// Does one batch, up to a step; returns true if it was done.
    fn batch(&mut self, batch: Batch, last: Option<Step>) -> bool {
        let Batch { chains, buffers, taken, together } = batch;
        self.post(buffers);
        let mut device = self.device.take().expect("it was not killed");
        let is_killed = |step| last == Some(step);
        let mut popped = Vec::new();
        if buffers == 1 && !together {
            let (guest, access) = (&self.memory.guest, self.memory.access);
            let keep = |Plain { start, len, id }| {
                let first = dray_ring::Segment { start, len };
                popped.push(Chain { id, slots: 1, first, more: false });
                true
            };
            device.pop_plain(guest, access, chains.into(), keep).unwrap();
        } else {
            for _ in 0..chains {
                popped.extend(device.pop(&self.memory.guest, self.memory.access).unwrap());
            }
        }
        if is_killed(Step::Popped) {
            return false;
        }
        device.commit();
        if is_killed(Step::Committed) {
            return false;
        }
        let taken = usize::from(taken).min(popped.len());
        let (done, back) = popped.split_at(taken);
        done.iter().for_each(|chain| self.use_chain(chain));
        if is_killed(Step::Used) {
            return false;
        }
        let is_plain = buffers == 1 && !together;
        // The descriptors as they are before anything is returned.
        let descriptors: [u8; 16 * SIZE as usize] = self.memory.read(RING);
        let give_back = |device: &mut L::Device, chains: &[Chain]| match (is_plain, together) {
            (true, _) => device.push_plain(chains.iter().map(|chain| (chain.id, 0))),
            (false, false) => chains.iter().for_each(|chain| device.push(chain, 0)),
            (false, true) => {
                let all: Vec<_> = chains.iter().map(|chain| (*chain, 0)).collect();
                device.push_together(&all);
            }
        };
        let first = &done[..done.len().min(1)];
        if is_killed(Step::Noted) {
            // Chains of several buffers are noted one by one.
            give_back(&mut device, if is_plain || together { done } else { first });
            self.memory.write(RING, descriptors);
            return false;
        }
        if is_killed(Step::SomeReturned) {
            match is_plain {
                true => give_back(&mut device, first),
                false => first.iter().for_each(|chain| device.push(chain, 0)),
            }
            return false;
        }
        give_back(&mut device, done);
        device.unpop(back.iter().map(|chain| chain.slots).sum());
        if is_killed(Step::Returned) {
            return false;
        }
        device.publish();
        if is_killed(Step::Published) {
            return false;
        }
        self.device = Some(device);
        self.poll();
        true
    }

    /// Puts another device in the place of one that was killed, while the driver sleeps or not.
    fn go_on(
        &mut self,
        sleeps: bool,
        resume: impl FnOnce(&L, Progress, bool) -> Result<L::Device, RingError>,
    ) {
        let word = self.words.words()[0].load(std::sync::atomic::Ordering::Relaxed);
        let progress = Progress::read(word).expect("it ran");
        let sends = self.memory.access == Access::Read;
        if !sleeps {
            // It posts again what it got back.
            self.poll();
            self.post(1);
        }
        let mut device = resume(&self.layout, progress, sends).expect("no error");
        device.publish_progress(self.words.word(0));
        self.device = Some(device);
        self.poll();
    }
}

fn run<L: Layout>(
    batches: &[Batch],
    access: Access,
    resume: impl Fn(&L, Progress, bool) -> Result<L::Device, RingError>,
) {
    for (step, sleeps) in STEPS.into_iter().flat_map(|step| [(step, false), (step, true)]) {
        for at in 0..batches.len() {
            let mut run = Run::<L>::new(access);
            for (number, batch) in batches.iter().enumerate() {
                let last = (number == at).then_some(step);
                if !run.batch(*batch, last) {
                    run.go_on(sleeps, &resume);
                }
            }
            // All buffers go round again.
            for _ in 0..4 {
                let all = Batch { chains: SIZE, buffers: 2, taken: SIZE, together: false };
                assert!(run.batch(all, None) && run.posted.is_empty(), "{step:?}, batch {at}");
            }
        }
    }
}

fn split(
    layout: &SplitLayout,
    at: Progress,
    sends: bool,
) -> Result<dray_ring::split::SplitDevice, RingError> {
    dray_ring::split::SplitDevice::resume(*layout, at, sends, false, false)
}

fn packed(
    layout: &PackedLayout,
    at: Progress,
    sends: bool,
) -> Result<dray_ring::packed::PackedDevice, RingError> {
    dray_ring::packed::PackedDevice::resume(*layout, at, sends, false, false)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn next_device_reads_nothing_twice_and_returns_everything(batches in batches()) {
        for access in [Access::Read, Access::Write] {
            run::<SplitLayout>(&batches, access, split);
            run::<PackedLayout>(&batches, access, packed);
        }
    }

    #[test]
    fn next_device_survives_any_note(word: u64, batches in batches()) {
        for sends in [false, true] {
            let access = if sends { Access::Read } else { Access::Write };
            let progress = Progress::read(word | 1 << 63).unwrap();
            let mut run = Run::<SplitLayout>::new(access);
            batches.iter().for_each(|batch| _ = run.batch(*batch, None));
            let _ = split(&run.layout, progress, sends);
            let mut run = Run::<PackedLayout>::new(access);
            batches.iter().for_each(|batch| _ = run.batch(*batch, None));
            let _ = packed(&run.layout, progress, sends);
        }
    }
}
