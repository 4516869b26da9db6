//! Values without duplicates.

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
