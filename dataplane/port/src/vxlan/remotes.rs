//! Remote hosts of the network, by number: those of the list first, then those that were learned.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::memory::{LEARNED_MAX, Memory};

/// The learned hosts: in two words the address, as one of IPv6, and in the next the second in which
/// a message last arrived.
#[derive(Clone)]
pub(super) struct Learned {
    memory: Memory,
    /// Held while an address is read or written, which takes two words.
    access: Arc<Mutex<()>>,
    /// Address of this host; the others have a port of the same number.
    local: SocketAddr,
}

impl Learned {
    pub(super) fn new(memory: Memory, local: SocketAddr) -> Self {
        Self { memory, access: Arc::default(), local }
    }

    /// Returns the address of a host by its number without the listed ones.
    pub(super) fn get(&self, at: usize) -> Option<SocketAddr> {
        let _access = self.lock();
        let [high, low, ..] = self.memory.hosts().get(at)?;
        let [high, low] = [high, low].map(|word| u128::from(word.load(Relaxed)));
        let ip = Ipv6Addr::from_bits(high << 64 | low).to_canonical();
        let is_known = ip.is_ipv4() == self.local.is_ipv4() && !ip.is_unspecified();
        is_known.then(|| SocketAddr::new(ip, self.local.port()))
    }

    fn set(&self, at: usize, ip: IpAddr) {
        let _access = self.lock();
        let ip = match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let [high, low, ..] = &self.memory.hosts()[at];
        high.store((ip.to_bits() >> 64) as u64, Relaxed);
        low.store(ip.to_bits() as u64, Relaxed);
    }

    fn seen(&self, at: usize) -> u32 {
        self.memory.hosts()[at][2].load(Relaxed) as u32
    }

    fn see(&self, at: usize, now: u32) {
        self.memory.hosts()[at][2].store(now.into(), Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.access.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The hosts that frames are accepted from.
pub(super) struct Sources {
    numbers: HashMap<IpAddr, u16>,
    /// Number of hosts in the list.
    listed: usize,
    /// The others, if any host is accepted.
    any: Option<Any>,
    /// Messages often come in trains from one host.
    last: Option<(IpAddr, u16)>,
}

struct Any {
    learned: Learned,
    age_s: u32,
}

impl Sources {
    pub(super) fn listed(remotes: &[SocketAddr]) -> Self {
        let number = |(number, remote): (usize, &SocketAddr)| (remote.ip(), number as u16);
        let numbers = remotes.iter().enumerate().map(number).collect();
        Self { numbers, listed: remotes.len(), any: None, last: None }
    }

    /// Accepts other hosts as well. They are forgotten after `age_s` if there are too many.
    pub(super) fn any(remotes: &[SocketAddr], learned: Learned, age_s: u32) -> Self {
        let any = Any { learned, age_s };
        Self { any: Some(any), ..Self::listed(remotes) }
    }

    /// Returns the number of the host at `ip`, or `None` if its frames are not accepted. `now` is
    /// in seconds.
    #[inline]
    pub(super) fn number(&mut self, ip: IpAddr, now: u32) -> Option<u16> {
        if let Some((last, number)) = self.last
            && last == ip
        {
            self.touch(number, now);
            return Some(number);
        }
        let number = self.numbers.get(&ip).copied().or_else(|| self.add(ip, now))?;
        self.touch(number, now);
        self.last = Some((ip, number));
        Some(number)
    }

    #[inline]
    fn touch(&mut self, number: u16, now: u32) {
        if let Some(any) = &self.any
            && let Some(at) = usize::from(number).checked_sub(self.listed)
        {
            any.learned.see(at, now);
        }
    }

    #[cold]
    fn add(&mut self, ip: IpAddr, now: u32) -> Option<u16> {
        let Any { learned, age_s } = self.any.as_ref()?;
        // A process before may have learned it; free numbers come last.
        let fits = |at: &usize| learned.get(*at).is_none_or(|known| known.ip() == ip);
        let at = match (0..LEARNED_MAX).find(fits) {
            Some(at) => at,
            None => {
                // Stations behind a host are as old as the host, or older: they were forgotten
                // before.
                let at = (0..LEARNED_MAX).min_by_key(|at| learned.seen(*at))?;
                if now.saturating_sub(learned.seen(at)) <= *age_s {
                    return None;
                }
                let before = learned.get(at)?.ip();
                self.numbers.remove(&before);
                self.last = None;
                at
            }
        };
        learned.set(at, ip);
        let number = (self.listed + at) as u16;
        self.numbers.insert(ip, number);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::memory::Limits;
    use super::*;

    fn ip(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    #[test]
    fn only_listed_hosts_are_accepted() {
        let remotes = [1, 2].map(|number| SocketAddr::new(ip(number), 4789));
        let mut sources = Sources::listed(&remotes);
        let numbers = [1, 2, 2, 3, 1].map(|number| sources.number(ip(number), 0));
        assert_eq!(numbers, [Some(0), Some(1), Some(1), None, Some(0)]);
    }

    #[test]
    fn silent_hosts_make_room_for_others() {
        let memory = Memory::create(Limits { frame_max: 1514, longest: 1514 }).unwrap();
        let learned = Learned::new(memory, SocketAddr::new(ip(9999), 4789));
        let remotes = [SocketAddr::new(ip(0), 4790)];
        let mut sources = Sources::any(&remotes, learned.clone(), 10);
        for number in 0..=LEARNED_MAX as u32 {
            assert_eq!(sources.number(ip(number), number / 1000), Some(number as u16));
        }
        let other = ip(5000);
        assert_eq!(sources.number(other, 10), None);
        assert_eq!(sources.number(ip(1), 11), Some(1));
        // The first one that was silent.
        assert_eq!(sources.number(other, 11), Some(2));
        assert_eq!(learned.get(1), Some(SocketAddr::new(other, 4789)));
        assert_eq!(sources.number(ip(2), 11), Some(3));
        assert_eq!(sources.number(ip(1), 11), Some(1));
        // The next process knows them by the same numbers.
        let mut next = Sources::any(&remotes, learned, 10);
        let numbers = [7, 5000, 0].map(|number| next.number(ip(number), 12));
        assert_eq!(numbers, [Some(7), Some(2), Some(0)]);
        assert_eq!(next.number(ip(9000), 12), Some(4));
    }
}
