//! Text about sessions.

use dray_text::{count, table};
use dray_upf::config::{Action, Far, Gate, Pdr, Qer, SessionConfig, Tunnel, Urr, Volume};
use dray_upf::{Counted, SessionState, SessionStatus, UsageStatus};
use dray_wire::gtpu::Direction;

/// Returns a table of sessions.
pub(crate) fn sessions(sessions: &[SessionStatus]) -> String {
    let header = [
        "seid",
        "user",
        "state",
        "teids",
        "gnb tunnels",
        "waiting",
        "uplink packets",
        "bytes",
        "downlink packets",
        "bytes",
    ];
    let rows = sessions.iter().map(|session| {
        let SessionStatus { seid, state, ue, teids, tunnels, waiting, usage, config: _ } = session;
        let mut row = vec![
            seid.to_string(),
            ue.join(" "),
            word(*state).to_owned(),
            listed(teids.iter().map(|teid| format!("{teid:#x}"))),
            listed(tunnels.iter().map(far_end)),
            waiting.to_string(),
        ];
        // The rule with the highest count, because all rules may count the same packets.
        let most = usage
            .iter()
            .map(|usage| usage.counted)
            .max_by_key(|counted| counted.uplink_packets + counted.downlink_packets);
        row.extend(most.map_or(["-"; 4].map(str::to_owned), numbers));
        row
    });
    table(&header, rows, 5)
}

/// Returns everything about a session.
pub(crate) fn session(session: &SessionStatus) -> String {
    let SessionStatus { seid, state, ue, teids, tunnels, waiting, usage, config } = session;
    let mut text = format!(
        "session {seid}: {}, {} waiting\n\
         user: {}\n\
         tunnels from gNBs: {}\n\
         tunnels to gNBs: {}\n",
        word(*state),
        count(*waiting, "packet"),
        ue.join(", "),
        listed(teids.iter().map(|teid| format!("{teid:#x}"))),
        listed(tunnels.iter().map(far_end)),
    );
    if let Some(SessionConfig { pdrs, fars, qers, urrs, .. }) = config {
        text += &format!("\n{}\n{}", self::pdrs(pdrs), self::fars(fars));
        if !qers.is_empty() {
            text += &format!("\n{}", self::qers(qers));
        }
        if !urrs.is_empty() {
            text += &format!("\n{}", self::urrs(urrs, usage));
        }
    }
    text
}

fn pdrs(pdrs: &[Pdr]) -> String {
    let mut pdrs: Vec<_> = pdrs.iter().collect();
    pdrs.sort_by_key(|pdr| (pdr.direction as usize, pdr.precedence, pdr.id));
    let header = ["PDR", "precedence", "from", "TEID", "FAR", "QERs", "URRs", "matches"];
    let rows = pdrs.into_iter().map(|pdr| {
        let from = match pdr.direction {
            Direction::Uplink => "access",
            Direction::Downlink => "core",
        };
        vec![
            pdr.id.to_string(),
            pdr.precedence.to_string(),
            from.to_owned(),
            listed(pdr.teid.iter().map(|teid| format!("{teid:#x}"))),
            pdr.far.to_string(),
            listed(pdr.qers.iter().map(u32::to_string)),
            listed(pdr.urrs.iter().map(u32::to_string)),
            matches(pdr),
        ]
    });
    table(&header, rows, 8)
}

/// Returns which packets a rule matches.
fn matches(pdr: &Pdr) -> String {
    let application = pdr.application.iter().map(|name| format!("application {name}"));
    let filters = pdr.filters.iter().map(ToString::to_string).collect::<Vec<_>>();
    let filters = (!filters.is_empty()).then(|| filters.join(" or "));
    let tos = pdr.tos.map(|[value, mask]| format!("tos {value:#x}/{mask:#x}"));
    let qfis = (!pdr.qfis.is_empty()).then(|| format!("qfis {:?}", pdr.qfis));
    let all: Vec<_> = application.chain(filters).chain(tos).chain(qfis).collect();
    if all.is_empty() { "all".to_owned() } else { all.join(", ") }
}

fn fars(fars: &[Far]) -> String {
    let rows = fars.iter().map(|far| {
        let action = match far.action {
            Action::Forward => "forward",
            Action::Drop => "drop",
            Action::Buffer => "buffer",
        };
        let tunnel = listed(far.tunnel.iter().map(far_end));
        vec![far.id.to_string(), action.to_owned(), tunnel]
    });
    table(&["FAR", "action", "tunnel"], rows, 3)
}

fn qers(qers: &[Qer]) -> String {
    let gate = |gate: Gate| match gate {
        Gate::Open => "open",
        Gate::Closed => "closed",
    };
    let rate = |kbps: Option<u64>| kbps.map_or("-".to_owned(), |kbps| kbps.to_string());
    let header = ["QER", "QFI", "uplink gate", "downlink gate", "uplink kb/s", "downlink kb/s"];
    let rows = qers.iter().map(|qer| {
        vec![
            qer.id.to_string(),
            listed(qer.qfi.iter().map(u8::to_string)),
            gate(qer.gate_uplink).to_owned(),
            gate(qer.gate_downlink).to_owned(),
            rate(qer.mbr_uplink_kbps),
            rate(qer.mbr_downlink_kbps),
        ]
    });
    table(&header, rows, 4)
}

fn urrs(urrs: &[Urr], usage: &[UsageStatus]) -> String {
    let header = [
        "URR",
        "threshold, bytes",
        "quota, bytes",
        "uplink packets",
        "bytes",
        "downlink packets",
        "bytes",
    ];
    let rows = urrs.iter().map(|urr| {
        let counted = usage.iter().find(|usage| usage.urr == urr.id);
        let counted = counted.map_or(Counted::default(), |usage| usage.counted);
        let spent = if is_spent(&urr.quota, &counted) { " (used up)" } else { "" };
        let quota = volume(&urr.quota) + spent;
        [urr.id.to_string(), volume(&urr.threshold), quota]
            .into_iter()
            .chain(numbers(counted))
            .collect()
    });
    table(&header, rows, 3)
}

/// Returns true if the quota is used up in at least one direction.
fn is_spent(quota: &Volume, counted: &Counted) -> bool {
    let (up, down) = (counted.uplink_octets, counted.downlink_octets);
    [(quota.uplink, up), (quota.downlink, down), (quota.total, up + down)]
        .into_iter()
        .any(|(quota, counted)| quota.is_some_and(|quota| counted >= quota))
}

fn volume(volume: &Volume) -> String {
    let Volume { total, uplink, downlink } = *volume;
    let parts = [("total", total), ("uplink", uplink), ("downlink", downlink)];
    listed(parts.into_iter().filter_map(|(name, bytes)| Some(format!("{name} {}", bytes?))))
}

fn numbers(counted: Counted) -> [String; 4] {
    let Counted { uplink_packets, uplink_octets, downlink_packets, downlink_octets } = counted;
    [uplink_packets, uplink_octets, downlink_packets, downlink_octets].map(|it| it.to_string())
}

fn far_end(tunnel: &Tunnel) -> String {
    let Tunnel { gnb, teid, dscp } = tunnel;
    let dscp = if *dscp == 0 { String::new() } else { format!(" (DSCP {dscp})") };
    format!("{gnb} {teid:#x}{dscp}")
}

fn word(state: SessionState) -> &'static str {
    match state {
        SessionState::Forwarding => "forwarding",
        SessionState::Buffering => "buffering",
        SessionState::Blocked => "blocked",
    }
}

fn listed(parts: impl Iterator<Item = String>) -> String {
    let parts: Vec<_> = parts.collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}
