//! The list entry of a table: its card, and what makes it.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::dyn_table::DynTable;
use crate::subject::{Capability, Operate};
use crate::table::{Kind, MeasuredMap, Resize, Setup, TableInfo};
use crate::work::loops::Erased;

/// Constructs a table.
pub type Maker = fn(&Setup) -> Arc<dyn DynTable>;

/// A table in the list: its card and its makers.
#[derive(Clone)]
pub struct Entry {
    /// The card.
    pub card: TableInfo,
    /// Most threads it supports; `None` for any number.
    pub max_threads: Option<usize>,
    /// Whether it stores nothing, so that there is nothing to verify.
    pub null: bool,
    /// Makers of maps, for a kind of keys and by whether the map is resized on request.
    maps: Vec<(&'static str, bool, Maker)>,
    /// Makers of subjects that are not maps.
    others: Vec<SubjectMaker>,
}

/// Makes a subject that is not a map.
#[derive(Clone, Copy)]
struct SubjectMaker {
    capability: Capability,
    make: Maker,
    own_threads: fn(usize) -> Option<usize>,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("card", &self.card)
            .finish_non_exhaustive()
    }
}

impl Entry {
    /// An entry without any maker.
    pub fn new(card: TableInfo) -> Self {
        Self {
            card,
            max_threads: None,
            null: false,
            maps: Vec::new(),
            others: Vec::new(),
        }
    }

    /// Adds a maker for a kind of keys.
    pub fn map<K: Kind, T: MeasuredMap<K>>(mut self) -> Self {
        self.maps.push((K::NAME, false, make::<K, T>));
        self
    }
    /// Adds a maker for a kind of keys, of a table that resizes on request.
    pub fn resized<K: Kind, T: Resize<K>>(mut self) -> Self {
        self.maps.push((K::NAME, true, make_resizable::<K, T>));
        self
    }
    /// Adds a maker of a subject that is not a map.
    pub fn subject<S: Operate>(mut self) -> Self {
        self.others.push(SubjectMaker {
            capability: S::CAPABILITY,
            make: |setup| Arc::new(S::build(setup)),
            own_threads: S::own_threads_of,
        });
        self
    }

    /// Limits the number of threads.
    pub fn max_threads(mut self, threads: usize) -> Self {
        self.max_threads = Some(threads);
        self
    }

    /// Declares that the table stores nothing.
    pub fn null(mut self) -> Self {
        self.null = true;
        self
    }

    /// Returns the maker for a kind of keys, `u64` or `bytes`; `None` if the table lacks it.
    pub fn maker(&self, kind: &str) -> Option<Maker> {
        self.find(kind, false)
    }
    /// Returns the maker of a table that resizes on request; `None` if the table does not, or lacks
    /// the kind of keys.
    pub fn resizable_maker(&self, kind: &str) -> Option<Maker> {
        self.find(kind, true)
    }
    fn find(&self, keys: &str, is_resized: bool) -> Option<Maker> {
        let mut all = self.maps.iter();
        let found = all.find(|(of, resized, _)| *of == keys && *resized == is_resized);
        found.map(|(_, _, maker)| *maker)
    }
    /// Returns the maker of a subject that is not a map; `None` if it lacks the capability, or
    /// needs more threads.
    pub fn subject_maker(&self, capability: Capability, threads: usize) -> Option<Maker> {
        let maker = self.subject_of(capability)?;
        (maker.own_threads)(threads).map(|_| maker.make)
    }

    /// Returns how many of `threads` threads a subject with this capability brings.
    pub fn own_threads(&self, capability: Capability, threads: usize) -> usize {
        let maker = self.subject_of(capability);
        let own = maker.and_then(|maker| (maker.own_threads)(threads));
        own.unwrap_or(0)
    }

    fn subject_of(&self, capability: Capability) -> Option<&SubjectMaker> {
        let mut makers = self.others.iter();
        makers.find(|maker| maker.capability == capability)
    }

    /// Returns its capabilities.
    pub fn capabilities(&self) -> Vec<Capability> {
        let map = self.maps.first().map(|_| Capability::Map);
        let others = self.others.iter().map(|maker| maker.capability);
        map.into_iter().chain(others).collect()
    }

    /// Returns whether it resizes on request.
    pub fn resizes(&self) -> bool {
        self.maps.iter().any(|(_, resized, _)| *resized)
    }
}

/// Constructs a table and erases its type.
pub(crate) fn make<K: Kind, T: MeasuredMap<K>>(setup: &Setup) -> Arc<dyn DynTable> {
    Arc::new(Erased::<K, T> {
        table: T::build(setup),
        calls: None,
        kind: PhantomData,
    })
}

fn make_resizable<K: Kind, T: Resize<K>>(setup: &Setup) -> Arc<dyn DynTable> {
    Arc::new(Erased::<K, T> {
        table: T::build(setup),
        calls: Some((T::resize_to, T::buckets)),
        kind: PhantomData,
    })
}
