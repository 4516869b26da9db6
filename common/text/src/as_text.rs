//! Types that are written in files and messages as their text.

/// Implements serde's traits for types whose serialised form is their text: what `Display` writes
/// and `FromStr` reads.
#[macro_export]
macro_rules! serde_as_text {
    ($($kind:ty),+ $(,)?) => {$(
        impl $crate::serde::Serialize for $kind {
            fn serialize<S: $crate::serde::Serializer>(
                &self,
                serializer: S,
            ) -> ::core::result::Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> $crate::serde::Deserialize<'de> for $kind {
            fn deserialize<D: $crate::serde::Deserializer<'de>>(
                deserializer: D,
            ) -> ::core::result::Result<Self, D::Error> {
                let text: ::std::string::String =
                    $crate::serde::Deserialize::deserialize(deserializer)?;
                text.parse().map_err($crate::serde::de::Error::custom)
            }
        }
    )+};
}
