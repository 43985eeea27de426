//! Maps of libraries: the adapters differ in a line for each operation.

/// Declares the adapter of a map with a hash function, all of whose operations need `&map` only,
/// and returns an entry of it for both kinds of keys and both hash functions by `entry(name)`.
///
/// `K` is the kind of keys. A line of an operation names its arguments.
macro_rules! library_map {
    (
        $(#[$about:meta])*
        $name:ident: $map:ident, $native:ty;
        get($get_map:ident, $get_key:ident) $get:expr;
        insert($insert_map:ident, $insert_key:ident, $value:ident) $insert:expr;
        remove($remove_map:ident, $remove_key:ident) $remove:expr;
        visit($visit_map:ident, $visit:ident) $for_each:expr;
        settle($settle_map:ident) $settle:expr;
    ) => {
        $(#[$about])*
        pub(crate) struct $name<K: Kind, S: BuildHasher> {
            map: $map<K::Key, K::Value, S>,
        }

        impl<K: Kind, S: BuildHasher + Default + Clone + Send + Sync + 'static> Table<K>
            for $name<K, S>
        {
            type Handle<'t> = &'t Self;
            const ITERATES: bool = true;

            fn build(setup: &Setup) -> Self {
                Self {
                    map: $map::with_capacity_and_hasher(setup.capacity, S::default()),
                }
            }
            fn handle(&self) -> &Self {
                self
            }
            fn size(&self) -> Option<usize> {
                Some(self.map.len())
            }
            fn settle(&self) {
                let $settle_map = &self.map;
                $settle;
            }
        }

        impl<K: Kind, S: BuildHasher + Clone> Handle<K> for &$name<K, S> {
            #[inline]
            fn get(&mut self, $get_key: &K::Query) -> Option<u64> {
                let $get_map = &self.map;
                $get
            }
            #[inline]
            fn for_each(&mut self, mut $visit: impl FnMut(&K::Query, u64)) {
                let $visit_map = &self.map;
                $for_each
            }
            #[inline]
            fn insert(&mut self, $insert_key: &K::Query, $value: K::Value) -> bool {
                let $insert_map = &self.map;
                $insert
            }
            #[inline]
            fn remove(&mut self, $remove_key: &K::Query) -> Option<u64> {
                let $remove_map = &self.map;
                $remove
            }
        }

        impl $name<U64, Common> {
            /// Returns an entry with all four makers.
            fn entry(name: &str) -> Entry {
                with_makers!(listed(name), $name, $native)
            }
        }
    };
}

pub(super) use library_map;
