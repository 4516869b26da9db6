//! Handles of open ports. Each thread has a table of its own, so that a handle is found without a
//! lock. A handle consists of the thread's number, a serial number and the place in the table:
//! handles of closed ports and of other threads are recognized.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::dray_code;
use crate::error::Failure;

const PLACE_BITS: u32 = 12;
const SERIAL_BITS: u32 = 28;
const THREAD_BITS: u32 = 64 - SERIAL_BITS - PLACE_BITS;

/// Maximum number of open ports of a thread.
const PORTS_MAX: usize = 1 << PLACE_BITS;

/// Numbers of threads begin with 1: no handle is 0.
static THREADS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static THREAD: u64 = THREADS.fetch_add(1, Ordering::Relaxed);
    static SERIAL: Cell<u64> = const { Cell::new(0) };
}

/// The open ports of a thread, with their handles.
pub(crate) struct Table<T>(RefCell<Vec<Entry<T>>>);

type Entry<T> = Option<(u64, Rc<T>)>;

impl<T> Table<T> {
    pub(crate) const fn new() -> Self {
        Self(RefCell::new(Vec::new()))
    }

    /// Adds a port and returns its handle.
    pub(crate) fn add(&self, port: T) -> Result<u64, Failure> {
        let mut ports = self.0.borrow_mut();
        let serial = SERIAL.get();
        let thread = THREAD.with(|thread| *thread);
        let place = ports.iter().position(Option::is_none).unwrap_or(ports.len());
        if place >= PORTS_MAX || serial >> SERIAL_BITS > 0 || thread >> THREAD_BITS > 0 {
            let why = format!("at most {PORTS_MAX} ports can be open on a thread");
            return Err(Failure::new(dray_code::DRAY_ERR_OPEN, why));
        }
        SERIAL.set(serial + 1);
        let handle = thread << (PLACE_BITS + SERIAL_BITS) | serial << PLACE_BITS | place as u64;
        let entry = Some((handle, Rc::new(port)));
        match ports.get_mut(place) {
            Some(free) => *free = entry,
            None => ports.push(entry),
        }
        Ok(handle)
    }

    /// Returns the port with this handle.
    #[inline]
    pub(crate) fn get(&self, handle: u64) -> Result<Rc<T>, Failure> {
        match self.0.borrow().get(place(handle)) {
            Some(Some((own, port))) if *own == handle => Ok(port.clone()),
            _ => Err(unknown(handle)),
        }
    }

    /// Removes the port with this handle.
    pub(crate) fn remove(&self, handle: u64) -> Result<Rc<T>, Failure> {
        let mut ports = self.0.borrow_mut();
        let entry = ports.get_mut(place(handle));
        let found = entry.and_then(|entry| entry.take_if(|(own, _)| *own == handle));
        found.map(|(_, port)| port).ok_or_else(|| unknown(handle))
    }
}

#[inline]
fn place(handle: u64) -> usize {
    handle as usize & (PORTS_MAX - 1)
}

#[cold]
fn unknown(handle: u64) -> Failure {
    let thread = handle >> (PLACE_BITS + SERIAL_BITS);
    if thread != THREAD.with(|own| *own) && (1..THREADS.load(Ordering::Relaxed)).contains(&thread) {
        let why =
            format!("port {handle:#x} belongs to another thread: use it on the one that opened it");
        return Failure::new(dray_code::DRAY_ERR_THREAD, why);
    }
    let why =
        format!("port {handle:#x} is not open: pass what dray_open stored, before dray_close");
    Failure::new(dray_code::DRAY_ERR_HANDLE, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_of_closed_ports_and_other_threads_are_refused() {
        let table = Table::new();
        let [a, b] = ['a', 'b'].map(|port| table.add(port).unwrap());
        assert_eq!((*table.get(a).unwrap(), *table.get(b).unwrap()), ('a', 'b'));
        table.remove(a).unwrap();
        let again = table.add('c').unwrap();
        assert_eq!(place(again), place(a));
        for closed in [a, 0, u64::MAX, b + 1] {
            assert_eq!(
                table.get(closed).unwrap_err().code,
                dray_code::DRAY_ERR_HANDLE,
                "{closed:#x}"
            );
            assert_eq!(table.remove(closed).unwrap_err().code, dray_code::DRAY_ERR_HANDLE);
        }
        let other = std::thread::spawn(|| Table::new().add('d').unwrap()).join().unwrap();
        assert_eq!(table.get(other).unwrap_err().code, dray_code::DRAY_ERR_THREAD);
        assert_eq!(*table.get(again).unwrap(), 'c');
    }

    #[test]
    fn table_has_a_limit() {
        let table = Table::new();
        let handles: Vec<u64> = (0..PORTS_MAX).map(|port| table.add(port).unwrap()).collect();
        assert_eq!(table.add(0).unwrap_err().code, dray_code::DRAY_ERR_OPEN);
        table.remove(handles[7]).unwrap();
        assert!(table.add(0).is_ok());
    }
}
