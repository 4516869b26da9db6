//! The order in which cases are measured. It differs from round to round, so that changes of the
//! machine over time do not favour some cases.

use super::case::Case;

/// Returns the indices of `cases` in the order of round `round`. Cases that share a testbed stay
/// together.
pub(crate) fn order(cases: &[Case], seed: u32, round: usize) -> Vec<usize> {
    let mut random = Random::new(u64::from(seed) << 32 | round as u64);
    let numbers: Vec<usize> = (0..cases.len()).collect();
    let mut groups: Vec<Vec<usize>> = numbers
        .chunk_by(|&a, &b| cases[a].shares_testbed(&cases[b]))
        .map(<[usize]>::to_vec)
        .collect();
    groups.iter_mut().for_each(|group| random.shuffle(group));
    random.shuffle(&mut groups);
    groups.concat()
}

/// Returns a random seed.
pub(super) fn any_seed() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) as u32
}

/// Pseudo-random number generator (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    /// Creates a generator; equal seeds give equal sequences.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number in `0.0..1.0`.
    pub(crate) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Fisher-Yates shuffle.
    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::find;
    use crate::plan::{Choices, Plan};

    #[test]
    fn trial_order_is_random_and_repeatable_by_seed() {
        let sizes = Some(vec![64, 512, 1500]);
        let plan = Plan::new(find("all").unwrap(), &Choices { sizes, ..Choices::default() });
        let cases = plan.unwrap().cases;
        let orders: Vec<_> = (0..20).map(|round| order(&cases, 7, round)).collect();
        assert_eq!(orders[3], order(&cases, 7, 3));
        assert_ne!(orders[3], order(&cases, 8, 3));
        let mut firsts: Vec<usize> = orders.iter().map(|order| order[0]).collect();
        firsts.sort_unstable();
        firsts.dedup();
        assert!(firsts.len() > 10, "{firsts:?}");
        for order in orders {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert!(sorted.iter().copied().eq(0..cases.len()), "every case once");
            // No testbed is built twice.
            let techniques: Vec<_> = order.iter().map(|&case| cases[case].technique).collect();
            let changes = techniques.windows(2).filter(|pair| pair[0] != pair[1]).count();
            let mut names: Vec<_> = techniques.iter().map(ToString::to_string).collect();
            names.sort();
            names.dedup();
            assert_eq!(changes + 1, names.len());
        }
    }
}
