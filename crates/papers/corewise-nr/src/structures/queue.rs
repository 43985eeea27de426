//! A queue: first in, first out.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::Sequential;

/// An operation that does not change a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// The oldest element; the response is [`Response::Element`].
    Front,
    /// The number of elements; the response is [`Response::Len`].
    Len,
}

/// An operation that may change a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write<T> {
    /// Adds an element; the response is [`Response::Pushed`].
    Push(T),
    /// Removes the oldest element; the response is [`Response::Element`].
    Pop,
}

/// What an operation on a queue returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response<T> {
    /// Whether the element was added; `false` if the queue has reached its limit.
    Pushed(bool),
    /// The oldest element, or `None` if the queue is empty.
    Element(Option<T>),
    /// The number of elements.
    Len(usize),
}

/// A queue with a limit. All operations take `O(1)`, amortized.
///
/// ```
/// use corewise_nr::Sequential;
/// use corewise_nr::structures::queue::{Queue, Response, Write};
///
/// let mut queue = Queue::with_limit(1);
/// assert_eq!(queue.write(&Write::Push("a")), Response::Pushed(true));
/// assert_eq!(queue.write(&Write::Push("b")), Response::Pushed(false));
/// assert_eq!(queue.write(&Write::Pop), Response::Element(Some("a")));
/// ```
#[derive(Clone, Debug)]
pub struct Queue<T> {
    elements: VecDeque<T>,
    limit: usize,
}

impl<T> Queue<T> {
    /// An empty queue, which only memory limits.
    #[must_use]
    pub const fn new() -> Self {
        Self::with_limit(usize::MAX)
    }

    /// An empty queue that refuses to have more than `limit` elements.
    #[must_use]
    pub const fn with_limit(limit: usize) -> Self {
        Self {
            elements: VecDeque::new(),
            limit,
        }
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Clone + Hash + Send + Sync> Sequential for Queue<T> {
    type Read = Read;
    type Write = Write<T>;
    type Response = Response<T>;

    fn read(&self, operation: &Read) -> Response<T> {
        match operation {
            Read::Front => Response::Element(self.elements.front().cloned()),
            Read::Len => Response::Len(self.elements.len()),
        }
    }

    fn write(&mut self, operation: &Write<T>) -> Response<T> {
        match operation {
            Write::Push(element) => {
                let has_room = self.elements.len() < self.limit;
                if has_room {
                    self.elements.push_back(element.clone());
                }
                Response::Pushed(has_room)
            }
            Write::Pop => Response::Element(self.elements.pop_front()),
        }
    }

    fn write_as_read(&self, operation: &Write<T>) -> Option<Response<T>> {
        match operation {
            Write::Push(_) => {
                (self.elements.len() >= self.limit).then_some(Response::Pushed(false))
            }
            Write::Pop => self.elements.is_empty().then_some(Response::Element(None)),
        }
    }

    fn digest(&self) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        self.elements.hash(&mut hasher);
        Some(hasher.finish())
    }
}
