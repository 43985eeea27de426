//! Lookups by types that are not the key's.

use std::borrow::Borrow;

/// A type that keys of type `K` can be looked up by.
///
/// Every `Q` that `K` can be borrowed as is one: `str` for keys of type `String`, and each type for
/// itself. Implement it where nothing can be borrowed, for example to look up pairs by a pair of
/// references. The trait is that of the crate `equivalent`, which hashbrown and indexmap use; this
/// crate does not depend on it.
///
/// A value and the keys that it is equivalent to must have the same hash. Otherwise lookups may
/// miss keys that are present, as they may if `Hash` and `Eq` of a key disagree.
///
/// ```
/// use std::hash::{Hash, Hasher};
/// use corewise_maps::{Equivalent, RelativisticMap};
///
/// /// Looks up a `(String, String)` without making one.
/// struct Pair<'a>(&'a str, &'a str);
///
/// impl Hash for Pair<'_> {
///     fn hash<H: Hasher>(&self, state: &mut H) {
///         (self.0, self.1).hash(state);
///     }
/// }
///
/// impl Equivalent<(String, String)> for Pair<'_> {
///     fn equivalent(&self, key: &(String, String)) -> bool {
///         self.0 == key.0 && self.1 == key.1
///     }
/// }
///
/// let fares = RelativisticMap::from([(("Kiel".to_owned(), "Oslo".to_owned()), 90)]);
/// assert_eq!(fares.pin().get(&Pair("Kiel", "Oslo")), Some(&90));
/// ```
#[diagnostic::on_unimplemented(
    message = "keys of type `{K}` cannot be looked up by `{Self}`",
    label = "must be what `{K}` can be borrowed as, and `Eq + Hash`",
    note = "implement `Borrow<{Self}>` for `{K}`, or `corewise_maps::Equivalent<{K}>` for `{Self}`"
)]
pub trait Equivalent<K: ?Sized> {
    /// Whether this value stands for `key`.
    fn equivalent(&self, key: &K) -> bool;
}

impl<Q, K> Equivalent<K> for Q
where
    Q: ?Sized + Eq,
    K: ?Sized + Borrow<Q>,
{
    #[inline]
    fn equivalent(&self, key: &K) -> bool {
        *self == *key.borrow()
    }
}
