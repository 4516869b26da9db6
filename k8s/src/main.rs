//! `dray-k8s`: ports of a node's switch as devices that pods claim.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use dray_daemon::log;
use dray_k8s::driver::Driver;
use dray_k8s::settings::Settings;
use dray_k8s::{kubelet, message, slice};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::timeout;
use tracing::{error, warn};

/// Time after which the published devices are checked again; a kubelet removes them when it starts.
const AGAIN: Duration = Duration::from_secs(60);
/// Time after which publishing is repeated after an error.
const SOON: Duration = Duration::from_secs(5);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let settings = Settings::parse();
    log::start(settings.log_level);
    match run(settings).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!(reason = format!("{error:#}"), "ended");
            ExitCode::FAILURE
        }
    }
}

async fn run(settings: Settings) -> anyhow::Result<()> {
    let client = kube::Client::try_default().await?;
    let registered = Arc::new(Notify::new());
    let driver = Driver::new(settings.clone(), client.clone());
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        ended = kubelet::serve(driver, registered.clone()) => ended,
        () = publish(&client, &settings, &registered) => Ok(()),
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}

/// Keeps the devices published.
async fn publish(client: &kube::Client, settings: &Settings, registered: &Notify) {
    loop {
        let published = timeout(AGAIN, slice::publish(client, settings)).await;
        let wait = match published {
            Ok(Ok(())) => AGAIN,
            Ok(Err(error)) => {
                warn!(reason = message(&error), "devices not published");
                SOON
            }
            Err(_) => {
                warn!(reason = "no reply of the API server", "devices not published");
                SOON
            }
        };
        log::report_suppressed();
        let _ = timeout(wait, registered.notified()).await;
    }
}
