//! The sender: test frames at a given rate, size and burst, or as fast as possible.

use std::ops::Range;
use std::time::Duration;

use dray_port::{BATCH_MAX, Batch, Frame, PortUri, Transmit, clock};
use dray_wire::test_frame::{self, FRAME_MIN, Stamp};

use crate::links::{Links, OpenPort};
use crate::pacer::{Pacer, wait_until};
use crate::sample::Sampler;
use crate::users::{self, Turn, Users};
use crate::{Latency, OnSample, Output, Phase, RoleError, SendJob, SendReport, Signal};

/// A sender with its ports open and its frames built.
pub struct Sender {
    job: SendJob,
    outputs: Vec<OpenOutput>,
    pub(crate) links: Links,
}

/// The ring of frames built for one port. Frame number `n` of the output has the head in slot
/// `n % slots`, belongs to stream `n % flows` and has sequence number `n / flows` in it.
pub(crate) struct OpenOutput {
    uri: PortUri,
    /// The port's first queue only, so that every flow stays in order.
    pub(crate) tx: Box<dyn Transmit>,
    /// First bytes of each frame, up to the end of the test header.
    heads: Heads,
    /// Bytes behind the head, equal in all frames: one copy of them stays in the cache.
    tail: Vec<u8>,
    first_stream: u16,
    flows: u64,
    sent: u64,
    /// With users' packets: whose turn it is, and how many bytes later than usual the test header
    /// lies.
    turn: Option<Turn>,
    behind: usize,
}

impl Sender {
    /// Opens the ports and builds all frames.
    pub fn open(job: SendJob, open: &OpenPort<'_>) -> Result<Self, RoleError> {
        let mut links = Links::default();
        let outputs = 0..job.outputs.len();
        let outputs = outputs.map(|index| OpenOutput::open(&job, index, &mut links, open));
        Ok(Self { outputs: outputs.collect::<Result<_, _>>()?, job, links })
    }

    /// Sends until the job is done or `signal` ends it.
    pub fn run(
        &mut self,
        signal: &Signal,
        on_sample: Option<OnSample>,
    ) -> Result<SendReport, RoleError> {
        let SendJob { burst, turn, timed, .. } = self.job;
        signal.wait_for_start();
        let schedule = Schedule::new(&self.job);
        let warm = |warm_up| Late::new(schedule.start + clock::to_ticks(warm_up));
        let mut late = timed.map(warm);
        let mut sampler = Sampler::new(self.job.interval, on_sample);
        sampler.worked(0);
        // Tick at which the current work began.
        let mut working: Option<u64> = None;
        let (mut sent, mut refused, mut output, mut turn_left) = (0, 0, 0, turn);
        let size = self.job.size as u64;

        loop {
            let mut now = clock::ticks();
            if let Some(from) = working.take() {
                sampler.worked(now - from);
            }
            let rest = schedule.rest(sent);
            let (due, end) = schedule.due(sent, rest, now);
            if now < due {
                now = wait_until(due.min(end), dray_port::PATIENCE, turn.is_some());
            }
            sampler.poll(now, sent, sent * size);
            if now >= end || signal.phase() != Phase::Run {
                break;
            }
            if now < due {
                continue;
            }
            let mut count = burst.min(usize::try_from(rest).unwrap_or(usize::MAX));
            let out = &mut self.outputs[output];
            let taken = match (&mut late, schedule.pacer) {
                (Some(late), Some(pacer)) => {
                    count = count.min(pacer.count(now).saturating_sub(sent).max(1) as usize);
                    let taken = out.send(count, |index| pacer.due(sent + index))?;
                    late.record(now, due, taken);
                    taken
                }
                _ => out.send(count, |_| due)?,
            };
            working = (taken > 0).then_some(now);
            output = (output + 1) % self.outputs.len();
            sent += taken as u64;
            refused += (count - taken) as u64;
            // The program that shares this CPU may be the receiver.
            if let Some(left) = &mut turn_left {
                *left = left.saturating_sub(taken);
                if taken < count || *left == 0 {
                    if let Some(from) = working.take() {
                        sampler.worked(clock::ticks() - from);
                    }
                    std::thread::yield_now();
                    turn_left = turn;
                }
            }
        }
        let elapsed_s = schedule.elapsed_s();
        Ok(SendReport {
            offered: schedule.offered(elapsed_s),
            sent,
            bytes: sent * size,
            refused,
            streams: self.outputs.iter().flat_map(OpenOutput::sent_by_stream).collect(),
            elapsed_ns: (elapsed_s * 1e9) as u64,
            late: late.map(|late| late.times),
            samples: sampler.finish(sent, sent * size),
        })
    }

    /// Returns the queues through which the sender transmits.
    pub(crate) fn outputs(&mut self) -> impl Iterator<Item = &mut dyn Transmit> {
        self.outputs.iter_mut().map(|output| &mut *output.tx as &mut dyn Transmit)
    }
}

/// Times at which a sender sends, from now on.
struct Schedule {
    rate: Option<f64>,
    count: Option<u64>,
    duration: Duration,
    /// Maximum number of frames; `None`: as many as the duration allows.
    most: Option<u64>,
    start: u64,
    deadline: u64,
    /// End of a sender that has sent everything: a given number of frames ends when the next one
    /// would be due.
    all_sent: u64,
    pacer: Option<Pacer>,
}

impl Schedule {
    fn new(job: &SendJob) -> Self {
        let SendJob { rate, count, duration, .. } = *job;
        let most = count.or(rate.map(|rate| (rate * duration.as_secs_f64()) as u64));
        let start = clock::ticks();
        let deadline = start + clock::to_ticks(duration);
        let pacer = rate.map(|rate| Pacer::new(start, rate));
        let all_sent = match (count, pacer) {
            (Some(count), Some(pacer)) => pacer.due(count).min(deadline),
            (Some(_), None) => start,
            (None, _) => deadline,
        };
        Self { rate, count, duration, most, start, deadline, all_sent, pacer }
    }

    /// Returns the number of frames left after `sent`.
    #[inline]
    fn rest(&self, sent: u64) -> u64 {
        self.most.map_or(u64::MAX, |most| most - sent)
    }

    /// Returns the ticks at which the frame after `sent` is due, and at which the sender ends:
    /// after sending everything, it stays to the end, so that every sample is taken.
    #[inline]
    fn due(&self, sent: u64, rest: u64, now: u64) -> (u64, u64) {
        match rest {
            0 => (self.all_sent, self.all_sent),
            _ => (self.pacer.map_or(now, |pacer| pacer.due(sent)), self.deadline),
        }
    }

    fn elapsed_s(&self) -> f64 {
        (clock::ticks() - self.start) as f64 / clock::ticks_per_second() as f64
    }

    /// Returns the number of frames that were due; a sender that was ended early was offered less.
    fn offered(&self, elapsed_s: f64) -> Option<u64> {
        let by = |seconds: f64| self.rate.map(|rate| (rate * seconds) as u64);
        let offered = by(self.duration.as_secs_f64()).min(by(elapsed_s));
        offered.map(|offered| self.count.map_or(offered, |count| count.min(offered)))
    }
}

/// Delays between a frame's due time and its hand-over to the port.
pub(crate) struct Late {
    /// Frames that were due before this tick do not count.
    from: u64,
    pub(crate) times: Latency,
}

impl Late {
    pub(crate) fn new(from: u64) -> Self {
        Self { from, times: Latency::default() }
    }

    /// Counts `frames` handed over at `now`, the first of which was due at the tick `due`.
    #[inline]
    pub(crate) fn record(&mut self, now: u64, due: u64, frames: usize) {
        if due >= self.from && frames > 0 {
            self.times.record_ns(clock::nanoseconds(now.saturating_sub(due)), frames as u64);
        }
    }
}

impl OpenOutput {
    fn open(
        job: &SendJob,
        index: usize,
        links: &mut Links,
        open: &OpenPort<'_>,
    ) -> Result<Self, RoleError> {
        let output = &job.outputs[index];
        RoleError::check_transmits(&output.port)?;
        let flows = job.flows.max(job.stations);
        if flows > 1 && output.port.is_one_flow() {
            return Err(RoleError::OneFlow { port: output.port.to_string(), flows });
        }
        let port = links.open(&output.port, open)?;
        let tx = port.tx.into_iter().next().expect("a port has a queue");
        let (flows, stations) = (usize::from(job.flows), usize::from(job.stations));
        let first_stream = (index * flows) as u16;
        let open = Self::over(tx, output, job.size, job.burst, (flows, stations))?;
        let open = Self { first_stream, ..open };
        match job.users {
            None => Ok(open),
            Some(users) => open.for_users(users, output, job.size),
        }
    }

    /// Creates the output of an open port, with the given flows and stations; its first stream is
    /// 0.
    pub(crate) fn over(
        tx: Box<dyn Transmit>,
        output: &Output,
        size: usize,
        burst: usize,
        (flows, stations): (usize, usize),
    ) -> Result<Self, RoleError> {
        RoleError::check_fits(size, &*tx, &output.port)?;
        // Whole rounds of the flows or stations, and enough slots that a burst never meets itself.
        let slots = burst.clamp(1, BATCH_MAX).next_multiple_of(flows * stations);
        let build = |slot| {
            let flow = output.flow.nth((slot % flows) as u16);
            test_frame::build(&flow.between_others((slot % stations) as u16), size)
        };
        let (heads, tail) = split((0..slots).map(build), FRAME_MIN);
        let (uri, flows) = (output.port.clone(), flows as u64);
        let (first_stream, sent, turn, behind) = (0, 0, None, 0);
        Ok(Self { uri, tx, heads, tail, first_stream, flows, sent, turn, behind })
    }

    /// Turns the output into one with users' packets.
    fn for_users(self, users: Users, output: &Output, size: usize) -> Result<Self, RoleError> {
        let behind = users.sender_extra();
        RoleError::check_fits(size + behind, &*self.tx, &output.port)?;
        let flow = |slot: usize| output.flow.nth((slot as u64 % self.flows) as u16);
        let frames = (0..self.heads.len()).map(|slot| users::build(&users, &flow(slot), size));
        let (heads, tail) = split(frames, behind + FRAME_MIN);
        let turn = heads.each(0..1).next().map(|head| Turn::new(users, head));
        Ok(Self { heads, tail, turn, behind, ..self })
    }

    /// Stamps and transmits the output's next `count` frames, each with its due tick `due(index)`;
    /// returns how many the port accepted. The other frames keep their numbers and are stamped
    /// again next time.
    #[inline(never)] // Its loops need the registers.
    pub(crate) fn send(
        &mut self,
        count: usize,
        due: impl Fn(u64) -> u64,
    ) -> Result<usize, RoleError> {
        let (first_stream, flows, behind) = (self.first_stream, self.flows, self.behind);
        let first = (self.sent % self.heads.len() as u64) as usize;
        // Incremented instead of divided again for every frame: a division takes as long as the
        // rest.
        let (mut flow, mut sequence) = (self.sent % flows, self.sent / flows);
        let mut index = 0;
        for part in self.heads.parts(first, count) {
            for head in self.heads.each_mut(part) {
                let (stream, ticks) = (first_stream + flow as u16, due(index));
                test_frame::stamp(&mut head[behind..], Stamp { stream, sequence, ticks });
                if let Some(turn) = &mut self.turn {
                    turn.put(head);
                }
                index += 1;
                flow += 1;
                if flow == flows {
                    (flow, sequence) = (0, sequence + 1);
                }
            }
        }
        let tail = Frame::from(self.tail.as_slice());
        let mut burst = Batch::new();
        for part in self.heads.parts(first, count) {
            let heads = self.heads.each(part);
            match tail.len() {
                0 => burst.extend(heads.map(Frame::from)),
                len => burst.extend(heads.map(|head| tail.with_head(head, 0..len))),
            }
        }
        let taken = self.tx.transmit(&burst).map_err(RoleError::port(&self.uri))?;
        self.sent += taken as u64;
        if let Some(turn) = &mut self.turn {
            turn.take_back(count - taken);
        }
        Ok(taken)
    }

    /// Returns the number of frames sent in each of the output's streams, in their order.
    fn sent_by_stream(&self) -> impl Iterator<Item = u64> + '_ {
        let (rounds, rest) = (self.sent / self.flows, self.sent % self.flows);
        (0..self.flows).map(move |flow| rounds + u64::from(flow < rest))
    }
}

/// Splits frames that differ only in their first `at` bytes into these and the rest.
fn split(frames: impl Iterator<Item = Vec<u8>>, at: usize) -> (Heads, Vec<u8>) {
    let mut tail = Vec::new();
    let heads = frames.map(|mut frame| {
        tail = frame.split_off(at);
        frame
    });
    (Heads::new(&heads.collect::<Vec<_>>(), at), tail)
}

/// The first bytes of frames, each from the start of a cache line on: a head that is spread over
/// one line more takes as many more loads.
struct Heads {
    bytes: Box<[u8]>,
    /// Offset of the first head.
    first: usize,
    /// Length of each head.
    head_len: usize,
    /// Number of heads.
    len: usize,
}

impl Heads {
    const LINE: usize = 64;

    fn new(heads: &[Vec<u8>], head_len: usize) -> Self {
        let bytes = vec![0; heads.len() * head_len.next_multiple_of(Self::LINE) + Self::LINE];
        let first = bytes.as_ptr().align_offset(Self::LINE).min(Self::LINE);
        let mut new = Self { bytes: bytes.into(), first, head_len, len: heads.len() };
        for (place, head) in new.each_mut(0..heads.len()).zip(heads) {
            place.copy_from_slice(head);
        }
        new
    }

    fn len(&self) -> usize {
        self.len
    }

    /// Returns the numbers of `count` heads from `first` on, in two parts: they begin anew behind
    /// the last one. There are at least `count`.
    #[inline]
    fn parts(&self, first: usize, count: usize) -> [Range<usize>; 2] {
        let end = first + count;
        [first..end.min(self.len), 0..end.saturating_sub(self.len)]
    }

    #[inline]
    fn stride(&self) -> usize {
        self.head_len.next_multiple_of(Self::LINE)
    }

    /// Returns where these heads are.
    #[inline]
    fn places(&self, heads: Range<usize>) -> Range<usize> {
        let place = |head| self.first + head * self.stride();
        place(heads.start)..place(heads.end)
    }

    #[inline]
    fn each(&self, heads: Range<usize>) -> impl Iterator<Item = &[u8]> {
        let (places, len) = (self.places(heads), self.head_len);
        self.bytes[places].chunks_exact(self.stride()).map(move |head| &head[..len])
    }

    #[inline]
    fn each_mut(&mut self, heads: Range<usize>) -> impl Iterator<Item = &mut [u8]> {
        let (places, stride, len) = (self.places(heads), self.stride(), self.head_len);
        self.bytes[places].chunks_exact_mut(stride).map(move |head| &mut head[..len])
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use dray_wire::Flow;
    use dray_wire::test_frame::{Verdict, read};
    use std::sync::{Arc, Mutex};

    fn job(rate: Option<f64>) -> SendJob {
        let output = Output { port: "null:".parse().unwrap(), flow: Flow::default() };
        SendJob {
            outputs: vec![output.clone(), output],
            flows: 3,
            stations: 1,
            size: 64,
            users: None,
            burst: 7,
            rate,
            count: None,
            duration: Duration::from_millis(50),
            turn: Some(SendJob::TURN),
            timed: None,
            interval: Duration::from_millis(10),
        }
    }

    #[test]
    fn sender_never_exceeds_offered_load() {
        let mut sender = Sender::open(job(Some(10_000.0)), &PortUri::open).unwrap();
        let report = sender.run(&Signal::default(), None).unwrap();
        assert_eq!(report.offered, Some(500));
        assert!(report.sent <= 500);
        assert_eq!(report.streams.len(), 6, "2 outputs of 3 flows");
        assert_eq!(report.streams.iter().sum::<u64>(), report.sent);
        assert_eq!(report.bytes, report.sent * 64);
        let frames: Vec<_> = report.samples.iter().map(|sample| sample.frames).collect();
        assert!(frames.is_sorted() && frames.last() == Some(&report.sent), "{frames:?}");
    }

    #[test]
    fn sender_reports_less_than_offered() {
        let mut sender = Sender::open(job(Some(1e12)), &PortUri::open).unwrap();
        let report = sender.run(&Signal::default(), None).unwrap();
        assert!(report.sent_less_than_offered());
        let unpaced =
            Sender::open(job(None), &PortUri::open).unwrap().run(&Signal::default(), None).unwrap();
        assert!(unpaced.offered.is_none() && !unpaced.sent_less_than_offered());
    }

    #[test]
    fn sender_ends_after_given_count() {
        let second = Duration::from_secs(1);
        for (rate, count, shortest) in
            [(None, 1000, 0), (Some(10_000.0), 200, 19), (Some(1e12), 500, 0)]
        {
            let job = SendJob { count: Some(count), duration: 60 * second, ..job(rate) };
            let report =
                Sender::open(job, &PortUri::open).unwrap().run(&Signal::default(), None).unwrap();
            assert_eq!(report.sent, count, "{report:?}");
            assert!(report.elapsed_ns >= shortest * 1_000_000, "{report:?}");
            assert!(report.offered.is_none_or(|offered| offered <= count), "{report:?}");
        }
    }

    #[test]
    fn signal_ends_the_sender() {
        let signal = Signal::default();
        signal.stop();
        let forever = SendJob { duration: Duration::from_secs(3600), ..job(None) };
        assert_eq!(
            Sender::open(forever, &PortUri::open).unwrap().run(&signal, None).unwrap().sent,
            0
        );
    }

    /// Accepts at most two frames of each burst and records their stamps.
    struct Picky(Arc<Mutex<Vec<Stamp>>>);

    impl Transmit for Picky {
        fn transmit(&mut self, frames: &[dray_port::Frame<'_>]) -> std::io::Result<usize> {
            let taken = frames.iter().take(2);
            let mut scratch = dray_port::scratch();
            let mut read = |frame: &dray_port::Frame<'_>| read(frame.bytes(&mut scratch));
            self.0.lock().unwrap().extend(taken.map(|frame| match read(frame) {
                Verdict::Intact(stamp) => stamp,
                other => panic!("{other:?}"),
            }));
            Ok(frames.len().min(2))
        }

        fn frame_max(&self) -> usize {
            dray_wire::FRAME_MAX
        }
    }

    /// A frame's stamp says when it was due, however late the sender is and whatever a port
    /// refuses.
    #[test]
    fn timed_frames_carry_their_due_time() {
        let taken = Arc::new(Mutex::new(Vec::new()));
        let timed = Some(Duration::from_millis(20));
        let one = SendJob { flows: 1, size: 1500, timed, ..job(Some(20_000.0)) };
        let mut sender =
            Sender::open(SendJob { outputs: vec![one.outputs[0].clone()], ..one }, &PortUri::open)
                .unwrap();
        sender.outputs[0].tx = Box::new(Picky(taken.clone()));
        let report = sender.run(&Signal::default(), None).unwrap();
        let taken = taken.lock().unwrap();
        assert_eq!(taken.len() as u64, report.sent);
        let gap = clock::to_ticks(Duration::from_micros(50));
        for (number, stamp) in taken.iter().enumerate() {
            let due = taken[0].ticks + number as u64 * gap;
            let margin = clock::ticks_per_second() / 1_000_000;
            assert!(stamp.ticks.abs_diff(due) <= margin, "{number}: {} of {due}", stamp.ticks);
        }
        // Only frames due after the first 20 ms count; a burst may span that moment.
        let (late, due) = (report.late.unwrap().count(), report.sent.saturating_sub(400));
        assert!(late.abs_diff(due) <= 7, "{late}, not {due}");
    }

    /// A output's frames carry consecutive numbers of its own streams in turn, across the end of
    /// the ring and if a port accepts only a part of a burst.
    #[test]
    fn streams_have_consecutive_sequence_numbers() {
        let taken = Arc::new(Mutex::new(Vec::new()));
        let mut output =
            OpenOutput::open(&job(None), 1, &mut Links::default(), &PortUri::open).unwrap();
        output.tx = Box::new(Picky(taken.clone()));
        for _ in 0..20 {
            output.send(7, |_| 0).unwrap();
        }
        let taken = taken.lock().unwrap();
        assert_eq!(taken.len(), 40);
        for (number, stamp) in taken.iter().enumerate() {
            assert_eq!(usize::from(stamp.stream), 3 + number % 3);
            assert_eq!(stamp.sequence, number as u64 / 3);
        }
    }
}
