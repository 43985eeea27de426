//! What an item may own, whatever its kind is: the one place that knows all kinds.

use super::filter::Remains;
use super::{Filter, ObjectMemory, bytes};
use crate::item::Item;
use corewise_nr::SetMemory;
use corewise_nr::sorted_set::{BoxedSet, MAX_MEMBERS, SortedSet};
use corewise_ops::ItemKind;
use std::ptr;

/// A sorted set.
pub(crate) type Set = BoxedSet;

/// An object that no item owns, or not yet.
pub(crate) enum Object {
    Set(Set),
    Filter(Box<Filter>),
    /// What is left of a filter that is being freed.
    Remains(Remains),
}

/// The object of an item.
pub(super) enum ObjectRef<'s> {
    Set(&'s mut SortedSet),
    Filter(&'s mut Filter),
}

/// Chunks, arrays and pages of a set that are freed in one step: 512 KiB at most.
const FREED_AT_ONCE: usize = 8;

/// The pointer in an item that owns an object.
fn address<L>(item: Item<'_, L>) -> usize {
    let mut bytes = [0; size_of::<usize>()];
    bytes.copy_from_slice(item.value());
    usize::from_ne_bytes(bytes)
}

/// The pointer in an item of the kind `Set`.
pub(super) fn set_pointer<L>(item: Item<'_, L>) -> *mut SortedSet {
    ptr::with_exposed_provenance_mut(address(item))
}

/// The pointer in an item of the kind `Filter`.
fn filter_pointer<L>(item: Item<'_, L>) -> *mut Filter {
    ptr::with_exposed_provenance_mut(address(item))
}

/// The set of an item.
///
/// # Safety
///
/// 1. The item is of the kind `Set` and was linked, and its set was not [taken](take).
/// 2. During `'s` no other reference to the set exists (guarantee 2), and it is not taken.
pub(crate) unsafe fn set_of<'s, L>(item: Item<'_, L>) -> &'s mut SortedSet {
    // SAFETY: the pointer is that of a box that became the item's when it was linked, and which
    // nothing has freed, by 1. 2.
    unsafe { &mut *set_pointer(item) }
}

/// The filter of an item.
///
/// # Safety
///
/// 1. The item is of the kind `Filter` and was linked, and its filter was not [taken](take).
/// 2. During `'s` no other reference to the filter exists (guarantee 2), and it is not taken.
pub(super) unsafe fn filter_of<'s, L>(item: Item<'_, L>) -> &'s mut Filter {
    // SAFETY: as in `set_of`.
    unsafe { &mut *filter_pointer(item) }
}

/// The object of an item.
///
/// # Safety
///
/// 1. The item owns an object and was linked, and its object was not [taken](take).
/// 2. During `'s` no other reference to the object exists (guarantee 2), and it is not taken.
pub(super) unsafe fn object_of<'s, L>(item: Item<'_, L>) -> ObjectRef<'s> {
    match item.kind() {
        // SAFETY: by 1 and 2, of a filter.
        ItemKind::Filter => ObjectRef::Filter(unsafe { filter_of(item) }),
        // SAFETY: by 1 and 2, of a set.
        _ => ObjectRef::Set(unsafe { set_of(item) }),
    }
}

/// The bytes of the object of an item.
///
/// # Safety
///
/// 1. The item owns an object and was linked, and its object was not [taken](take).
/// 2. No other reference to the object exists (guarantee 2).
pub(crate) unsafe fn bytes_of<L>(item: Item<'_, L>) -> usize {
    // SAFETY: by 1 and 2; the reference ends here.
    unsafe { object_of(item) }.bytes()
}

/// Takes the set out of an item, which is no longer used as one that owns a set.
///
/// # Safety
///
/// 1. As of [`take`], of an item of the kind `Set`.
pub(super) unsafe fn take_set<L>(item: Item<'_, L>) -> Set {
    // SAFETY: the pointer is that of a box that became the item's when it was linked; nothing else
    // owns it, by 1. The box was in the set's own memory.
    unsafe {
        let set = set_pointer(item);
        Set::from_raw_in(set, (*set).source().clone())
    }
}

/// Takes the object out of an item, which is no longer used as one that owns an object.
///
/// # Safety
///
/// 1. The item owns an object and was linked; its object was not taken, and is not taken again.
/// 2. No reference to the object exists.
pub(crate) unsafe fn take<L>(item: Item<'_, L>) -> Object {
    match item.kind() {
        // SAFETY: the pointer is that of a box that became the item's when it was linked; nothing
        // else owns it, by 1 and 2.
        ItemKind::Filter => Object::Filter(unsafe { Box::from_raw(filter_pointer(item)) }),
        // SAFETY: by 1 and 2 (1).
        _ => Object::Set(unsafe { take_set(item) }),
    }
}

impl Object {
    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Set(set) => bytes(set),
            Self::Filter(filter) => filter.bytes(),
            Self::Remains(remains) => remains.bytes(),
        }
    }

    /// Frees a part; returns what is left.
    pub(super) fn free_some(self) -> Option<Self> {
        match self {
            Self::Set(mut set) => set.drop_some(FREED_AT_ONCE).then_some(Self::Set(set)),
            Self::Filter(filter) => filter.into_remains().free_some().map(Self::Remains),
            Self::Remains(remains) => remains.free_some().map(Self::Remains),
        }
    }

    /// What [`ObjectRef::len`] says.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Set(set) => set.len(),
            Self::Filter(_) | Self::Remains(_) => 1,
        }
    }

    /// Whether it has removed members that it is to free.
    pub(super) fn has_detached(&self) -> bool {
        matches!(self, Self::Set(set) if set.has_detached())
    }

    /// An object of this kind without contents; `None` if there is no memory.
    pub(super) fn empty(kind: ItemKind, memory: &ObjectMemory) -> Option<Self> {
        Some(match kind {
            ItemKind::Filter => Self::Filter(Filter::empty(memory)?),
            _ => Self::Set(SortedSet::with_memory(MAX_MEMBERS, 0, memory.sets()).boxed()),
        })
    }

    /// Gives up the object to a pointer, which [`OwnedPointer::object`] takes back.
    ///
    /// # Panics
    ///
    /// For remains, which no item gets.
    pub(super) fn into_pointer(self) -> OwnedPointer {
        match self {
            Self::Set(set) => {
                let memory = set.source().clone();
                OwnedPointer::Set(Set::into_raw(set), memory)
            }
            Self::Filter(filter) => OwnedPointer::Filter(Box::into_raw(filter)),
            Self::Remains(_) => unreachable!("only graveyards have remains"),
        }
    }
}

/// A pointer to an object that is about to become an item's.
pub(super) enum OwnedPointer {
    Set(*mut SortedSet, SetMemory),
    Filter(*mut Filter),
}

impl OwnedPointer {
    /// The value of the item, and its kind.
    pub(super) fn value(&self) -> ([u8; size_of::<usize>()], ItemKind) {
        match self {
            Self::Set(set, _) => (set.expose_provenance().to_ne_bytes(), ItemKind::Set),
            Self::Filter(filter) => (filter.expose_provenance().to_ne_bytes(), ItemKind::Filter),
        }
    }

    /// Takes the object back.
    ///
    /// # Safety
    ///
    /// 1. No item with the pointer was linked.
    pub(super) unsafe fn object(self) -> Object {
        match self {
            // SAFETY: nothing owns the set, by 1. The box was in this memory.
            Self::Set(set, memory) => Object::Set(unsafe { Set::from_raw_in(set, memory) }),
            // SAFETY: nothing owns the filter, by 1.
            Self::Filter(filter) => Object::Filter(unsafe { Box::from_raw(filter) }),
        }
    }
}

impl ObjectRef<'_> {
    pub(super) fn kind(&self) -> ItemKind {
        match self {
            Self::Set(_) => ItemKind::Set,
            Self::Filter(_) => ItemKind::Filter,
        }
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Set(set) => bytes(set),
            Self::Filter(filter) => filter.bytes(),
        }
    }

    /// The members of a set; 1 for a filter, which stays when it becomes empty.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Set(set) => set.len(),
            Self::Filter(_) => 1,
        }
    }

    /// Whether it has removed members that it is to free.
    pub(super) fn has_detached(&self) -> bool {
        matches!(self, Self::Set(set) if set.has_detached())
    }

    /// A copy; `None` if there is no memory.
    pub(super) fn copy(&self) -> Option<Object> {
        match self {
            Self::Set(set) => Some(Object::Set((**set).clone().boxed())),
            Self::Filter(filter) => Some(Object::Filter(filter.copy()?)),
        }
    }

    /// Takes the contents and leaves an object without any; `None` if there is no memory for it.
    pub(super) fn take_contents(&mut self, memory: &ObjectMemory) -> Option<Object> {
        match self {
            Self::Set(set) => {
                let empty = set.emptied();
                Some(Object::Set(std::mem::replace(*set, empty).boxed()))
            }
            Self::Filter(filter) => {
                let mut taken = Filter::empty(memory)?;
                std::mem::swap(&mut *taken, *filter);
                Some(Object::Filter(taken))
            }
        }
    }

    /// Replaces the contents by those of an object of the same kind; gives another back.
    pub(super) fn fill(&mut self, object: Object) -> Option<Object> {
        match (self, object) {
            (Self::Set(set), Object::Set(contents)) => **set = Set::into_inner(contents),
            (Self::Filter(filter), Object::Filter(contents)) => **filter = *contents,
            (_, object) => return Some(object),
        }
        None
    }
}
