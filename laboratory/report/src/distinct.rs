//! Values without duplicates, and groups of values.

/// Returns the value of `of` for each of `items`, without duplicates, in their order.
pub fn distinct<T: PartialEq, I>(
    items: impl IntoIterator<Item = I>,
    of: impl Fn(I) -> T,
) -> Vec<T> {
    let mut found = Vec::new();
    for item in items {
        let value = of(item);
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

/// Returns the values of each key, in the order in which the keys first appear.
pub(crate) fn grouped<K: PartialEq, V>(
    items: impl IntoIterator<Item = (K, V)>,
) -> Vec<(K, Vec<V>)> {
    let mut groups: Vec<(K, Vec<V>)> = Vec::new();
    for (key, value) in items {
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => groups.push((key, vec![value])),
        }
    }
    groups
}
