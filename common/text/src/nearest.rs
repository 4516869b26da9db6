//! Nearest match of a mistyped name.

/// Returns advice for an unknown name: the nearest of `names`, or else all of them.
pub fn advice<'n>(given: &str, names: impl IntoIterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    match nearest(given, names.iter().copied()) {
        Some(name) => format!("did you mean {name}?"),
        None => format!("give one of {}", names.join(", ")),
    }
}

/// Returns what joins an unknown name to a list of those there are: the nearest of `names`, if one
/// is near, between a colon and a question mark; otherwise a semicolon.
pub fn hint<'n>(given: &str, names: impl IntoIterator<Item = &'n str>) -> String {
    nearest(given, names).map_or(";".to_owned(), |name| format!(": did you mean {name}?"))
}

/// Returns the name that differs least from `given`, if it differs in at most a third of its
/// letters.
pub fn nearest<'n>(given: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let given: Vec<char> = given.to_lowercase().chars().collect();
    let limit = (given.len() / 3).max(1);
    // A whole name that was begun is nearer than one with as many other letters.
    let key = |name: &str| {
        let name: Vec<char> = name.to_lowercase().chars().collect();
        (distance(&given, &name), !name.starts_with(&given))
    };
    let near = names.into_iter().map(|name| (key(name), name));
    let nearest = near.min_by_key(|(key, _)| *key)?;
    // Two letters have nothing in common with two others.
    (nearest.0.0 <= limit && nearest.0.0 < given.len()).then_some(nearest.1)
}

/// Returns the number of letters to insert, delete, replace, or swap with their neighbour.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let changed = rows[i][j] + usize::from(x != y);
            let mut least = changed.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 6] =
        ["veth/udp", "veth/raw", "switch/patch", "ara2019-table1", "rtt", "mtu"];

    #[test]
    fn nearest_is_found_for_typing_errors() {
        for (given, name) in [
            ("vet/udp", "veth/udp"),
            ("vteh/udp", "veth/udp"),
            ("VETH/UDP", "veth/udp"),
            ("swich/patch", "switch/patch"),
            ("ara2019-tabel1", "ara2019-table1"),
            ("rt", "rtt"),
            ("mut", "mtu"),
        ] {
            assert_eq!(nearest(given, NAMES), Some(name), "{given}");
        }
        for given in ["", "x", "zz", "stop", "rw", "tokenring", "bridge", "direct/virtio"] {
            assert_eq!(nearest(given, NAMES), None, "{given}");
        }
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn advice_without_nearest_lists_names() {
        assert_eq!(advice("rt", ["mtu", "rtt"]), "did you mean rtt?");
        assert_eq!(advice("name", ["mtu", "rtt"]), "give one of mtu, rtt");
    }
}
