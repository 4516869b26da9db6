//! Counters of data threads, including drops by reason.
//!
//! A data thread adds to plain numbers and copies them now and then to a place that control threads
//! read, so a frame costs no access to shared memory. [`counters!`](crate::counters!) generates the
//! types of both, from the names of the numbers and of the reasons.

/// Generates, from names with their documentation:
///
/// * `DropReason`, an enum of the reasons, with `ALL`, `name` and `meaning`, which is its
///   documentation;
/// * `Drops`, a number for each of them;
/// * `Counters`, the numbers, and `drops`;
/// * `SharedCounters`, counters that threads publish, and others read, also in another process.
///
/// In JSON, counters and drops are objects with all names; unknown names of another version are
/// ignored.
#[macro_export]
macro_rules! counters {
    (
        $(#[$reason_doc:meta])*
        reasons { $($(#[doc = $variant_doc:literal])+ $variant:ident = $name:literal,)* }
        $(#[$counters_doc:meta])*
        numbers { $($(#[$number_doc:meta])* $number:ident,)* }
    ) => {
        $(#[$reason_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum DropReason {
            $($(#[doc = $variant_doc])+ $variant,)*
        }

        impl DropReason {
            /// All reasons, in order.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns the name of the reason in JSON and tables.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Returns its documentation: what was dropped, in a sentence.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($variant_doc),+).trim_start(),)*
                }
            }
        }

        const REASONS: usize = DropReason::ALL.len();
        const NUMBERS: usize = [$(stringify!($number),)*].len();
        const WORDS: usize = NUMBERS + REASONS;

        $(#[$counters_doc])*
        #[derive(
            Clone,
            Copy,
            Debug,
            Default,
            PartialEq,
            Eq,
            $crate::serde::Serialize,
            $crate::serde::Deserialize,
        )]
        #[serde(crate = "dray_datapath::serde")]
        pub struct Counters {
            $($(#[$number_doc])* pub $number: u64,)*
            /// Drops by reason.
            pub drops: Drops,
        }

        impl Counters {
            /// Number of words in which they are [stored](Self::store).
            pub const WORDS: usize = WORDS;

            /// Stores them in the first words of `to`. Each number is consistent by itself.
            pub fn store(&self, to: &[std::sync::atomic::AtomicU64]) {
                for (to, from) in to.iter().zip(self.words()) {
                    to.store(from, std::sync::atomic::Ordering::Relaxed);
                }
            }

            /// Loads what was stored.
            ///
            /// # Panics
            /// If there are too few words.
            pub fn load(from: &[std::sync::atomic::AtomicU64]) -> Self {
                let load = |index: usize| from[index].load(std::sync::atomic::Ordering::Relaxed);
                Self::from_words(std::array::from_fn(load))
            }

            fn words(&self) -> [u64; Self::WORDS] {
                let mut words = [0; WORDS];
                let (first, drops) = words.split_at_mut(NUMBERS);
                first.copy_from_slice(&[$(self.$number,)*]);
                drops.copy_from_slice(&self.drops.0);
                words
            }

            fn from_words(words: [u64; WORDS]) -> Self {
                let [$($number,)* drops @ ..] = words;
                Self { $($number,)* drops: Drops(drops) }
            }
        }

        impl Counters {
            /// Returns what was counted after `earlier`. If a number is lower than then, the
            /// counters have started from zero since: all of it came after.
            pub fn since(&self, earlier: &Self) -> Self {
                let (now, then) = (self.words(), earlier.words());
                if now.iter().zip(&then).any(|(now, then)| now < then) {
                    return *self;
                }
                Self::from_words(std::array::from_fn(|i| now[i] - then[i]))
            }
        }

        impl std::ops::AddAssign<&Self> for Counters {
            fn add_assign(&mut self, other: &Self) {
                let (own, other) = (self.words(), other.words());
                *self = Self::from_words(std::array::from_fn(|i| own[i].wrapping_add(other[i])));
            }
        }

        /// Drops by reason. In JSON an object with a number for every reason.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Drops([u64; REASONS]);

        impl Default for Drops {
            fn default() -> Self {
                Self([0; REASONS])
            }
        }

        impl Drops {
            /// Adds `many` drops for `reason`.
            #[inline(always)]
            pub fn add(&mut self, reason: DropReason, many: u64) {
                self.0[reason as usize] += many;
            }

            /// Returns the number of drops for `reason`.
            pub fn get(&self, reason: DropReason) -> u64 {
                self.0[reason as usize]
            }

            /// Returns the total number of drops.
            pub fn total(&self) -> u64 {
                self.0.iter().sum()
            }

            /// Returns the reasons with nonzero numbers, and the numbers.
            pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> {
                let all = DropReason::ALL.iter().copied().zip(self.0);
                all.filter(|(_, many)| *many != 0)
            }
        }

        impl $crate::serde::Serialize for Drops {
            fn serialize<S: $crate::serde::Serializer>(
                &self,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                let names = DropReason::ALL.iter().map(|reason| reason.name());
                serializer.collect_map(names.zip(&self.0))
            }
        }

        impl<'de> $crate::serde::Deserialize<'de> for Drops {
            fn deserialize<D: $crate::serde::Deserializer<'de>>(
                deserializer: D,
            ) -> Result<Self, D::Error> {
                let given = std::collections::HashMap::<String, u64>::deserialize(deserializer)?;
                let number = |reason: &DropReason| given.get(reason.name()).copied().unwrap_or(0);
                Ok(Self(std::array::from_fn(|index| number(&DropReason::ALL[index]))))
            }
        }

        /// Counters that threads publish, in memory that outlives the process. Each thread writes a
        /// row of its own; the sum of all rows is what has been counted. Numbers are consistent by
        /// themselves, but may be from slightly different moments.
        #[derive(Debug)]
        pub struct SharedCounters($crate::SharedWords);

        impl SharedCounters {
            /// Row of what the process before has counted.
            pub const BEFORE: usize = 0;
            /// Row of control threads.
            pub const CONTROL: usize = 1;
            /// Words of a row: a whole number of cache lines, since threads write theirs at any
            /// time.
            const ROW: usize = Counters::WORDS.next_multiple_of(8);

            /// Returns the row of a worker.
            pub const fn row_of(worker: usize) -> usize {
                2 + worker
            }

            /// Creates counters of `workers` workers, all zero.
            pub fn new(workers: usize) -> std::io::Result<Self> {
                let words = Self::ROW * Self::row_of(workers);
                Ok(Self($crate::SharedWords::create("dray-counters", words)?))
            }

            fn words(&self, row: usize) -> &[std::sync::atomic::AtomicU64] {
                &self.0.words()[row * Self::ROW..][..Self::ROW]
            }

            /// Publishes the counters of a row.
            pub fn set(&self, row: usize, counters: &Counters) {
                counters.store(self.words(row));
            }

            /// Adds to a row; several threads may do so at the same time.
            pub fn add(&self, row: usize, counters: &Counters) {
                self.merge(row, counters, std::sync::atomic::AtomicU64::fetch_add);
            }

            /// Raises the numbers of a row to at least those of `counters`: of several threads, one
            /// may have read the numbers earlier, and publish them later.
            pub fn raise(&self, row: usize, counters: &Counters) {
                self.merge(row, counters, std::sync::atomic::AtomicU64::fetch_max);
            }

            fn merge(
                &self,
                row: usize,
                counters: &Counters,
                merge: fn(&std::sync::atomic::AtomicU64, u64, std::sync::atomic::Ordering) -> u64,
            ) {
                for (to, from) in self.words(row).iter().zip(counters.words()) {
                    merge(to, from, std::sync::atomic::Ordering::Relaxed);
                }
            }

            /// Returns the counters of a row, as published last.
            pub fn get(&self, row: usize) -> Counters {
                Counters::load(self.words(row))
            }

            /// Returns the sum of all rows.
            pub fn sum(&self) -> Counters {
                let mut sum = Counters::default();
                let rows = self.0.words().chunks_exact(Self::ROW);
                rows.for_each(|words| sum += &Counters::load(words));
                sum
            }

            /// Returns the sum of the counters of another process, whose memory `descriptor` is.
            pub fn sum_of(descriptor: std::os::fd::OwnedFd) -> std::io::Result<Counters> {
                Ok(Self($crate::SharedWords::of(descriptor)?).sum())
            }
        }

        impl std::os::fd::AsFd for SharedCounters {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.0.as_fd()
            }
        }
    };
}

#[cfg(test)]
#[expect(unreachable_pub, reason = "the macro makes types for other modules")]
mod tests {
    use std::os::fd::AsFd;

    crate::counters! {
        /// Reason for a drop.
        reasons {
            /// The frame was too long.
            Long = "too_long",
            /// The frame was too short.
            Short = "too_short",
        }
        /// Numbers.
        numbers {
            /// Received.
            rx,
            /// Transmitted.
            tx,
        }
    }

    fn some() -> Counters {
        Counters::from_words(std::array::from_fn(|index| index as u64 + 1))
    }

    #[test]
    fn sum_of_published_counters_outlives_the_process() {
        let shared = SharedCounters::new(1).unwrap();
        let worker = SharedCounters::row_of(0);
        shared.set(worker, &Counters { rx: 900, ..Counters::default() });
        for row in [SharedCounters::BEFORE, worker] {
            shared.set(row, &some());
        }
        let file = shared.as_fd().try_clone_to_owned().unwrap();
        let sum = shared.sum();
        drop(shared);
        assert_eq!((sum.rx, SharedCounters::sum_of(file).unwrap()), (2, sum));
        let shared = SharedCounters::new(0).unwrap();
        let row = SharedCounters::CONTROL;
        shared.raise(row, &Counters { rx: 5, ..Counters::default() });
        shared.raise(row, &Counters { rx: 4, tx: 1, ..Counters::default() });
        shared.add(row, &Counters { tx: 2, ..Counters::default() });
        let Counters { rx, tx, .. } = shared.sum();
        assert_eq!((rx, tx), (5, 3));
        let no_counters = std::fs::File::open("/dev/null").unwrap();
        assert!(SharedCounters::sum_of(no_counters.into()).is_err());
    }

    #[test]
    fn published_counters_are_read_and_summed() {
        let shared = SharedCounters::new(0).unwrap();
        shared.set(1, &some());
        let mut sum = shared.get(1);
        assert_eq!(sum, some());
        sum += &some();
        assert_eq!((sum.rx, sum.tx), (2, 4));
        assert_eq!(sum.drops.get(DropReason::Short), 8);
        assert_eq!(sum.drops.total(), 14);
        sum.drops.add(DropReason::Long, 1);
        assert_eq!(
            sum.drops.iter().collect::<Vec<_>>(),
            [(DropReason::Long, 7), (DropReason::Short, 8)]
        );
        assert_eq!(DropReason::Short.meaning(), "The frame was too short.");
    }

    #[test]
    fn difference_starts_anew_with_counters_that_restarted() {
        let mut twice = some();
        twice += &some();
        assert_eq!(twice.since(&some()), some());
        assert_eq!(some().since(&twice), some());
    }

    #[test]
    fn counters_json_names_every_drop_reason() {
        let text = serde_json::to_string(&some()).unwrap();
        assert_eq!(text, r#"{"rx":1,"tx":2,"drops":{"too_long":3,"too_short":4}}"#);
        assert_eq!(serde_json::from_str::<Counters>(&text).unwrap(), some());
        let older = r#"{"rx":1,"tx":2,"drops":{"too_long":3,"gone":9}}"#;
        let drops = serde_json::from_str::<Counters>(older).unwrap().drops;
        assert_eq!((drops.get(DropReason::Long), drops.total()), (3, 3));
    }
}
