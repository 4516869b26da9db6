//! The thread that advances the clock of a switch and removes old stations.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::setting::Setting;

/// Interval at which links are checked and the clock advances.
const INTERVAL: Duration = Duration::from_millis(250);

/// The thread; dropping it stops it.
pub(super) struct Housekeeper {
    stop: mpsc::Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Housekeeper {
    /// Starts the thread of a switch that runs since `started` and removes stations after `age_s`
    /// seconds.
    pub(super) fn start(setting: Arc<Setting>, started: Instant, age_s: u16) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new().name("dray-age".to_owned()).spawn(move || {
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let now = started.elapsed().as_secs() as u32;
                let before = setting.now.swap(now, Relaxed);
                setting.forget_gone();
                if now != before && !setting.table.is_empty() {
                    setting.table.expire(now, age_s);
                }
            }
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Housekeeper {
    fn drop(&mut self) {
        let _ = self.stop.send(());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
