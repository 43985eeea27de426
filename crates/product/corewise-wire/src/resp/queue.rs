//! Requests that are kept.

use super::client::encode_bulk;
use super::request::Request;

/// Copies of requests, in order, in one buffer.
///
/// ```
/// use bumpalo::Bump;
/// use corewise_wire::resp::{Codec, Limits, Parsed, RequestQueue};
///
/// let (limits, scratch) = (Limits::default(), Bump::new());
/// let mut queue = RequestQueue::default();
/// for input in ["SET k v\r\n", "PING\r\n"] {
///     let parsed = Codec::new(true).next(input.as_bytes(), &limits, &scratch);
///     let Parsed::Request { request, .. } = parsed else { panic!() };
///     queue.push(request);
/// }
/// let names: Vec<_> = queue.iter().map(|request| request.name()).collect();
/// assert_eq!(names, [&b"SET"[..], b"PING"]);
/// assert_eq!(queue.iter().next().unwrap().args().collect::<Vec<_>>(), [b"k", b"v"]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct RequestQueue {
    /// The elements of the requests, as bulk strings.
    elements: Vec<u8>,
    /// For each request: the end of its elements, and their number.
    requests: Vec<(usize, u32)>,
}

impl RequestQueue {
    /// Appends a copy of a request. Takes time in proportion to its length.
    pub fn push(&mut self, request: Request<'_>) {
        encode_bulk(request.name(), &mut self.elements);
        for arg in request.args() {
            encode_bulk(arg, &mut self.elements);
        }
        let count = request.args().len() as u32 + 1;
        self.requests.push((self.elements.len(), count));
    }

    /// Appends a request of `count` elements, the name first; `elements` passes each to the
    /// function that it is given. Takes time in proportion to their lengths.
    ///
    /// ```
    /// let mut queue = corewise_wire::resp::RequestQueue::default();
    /// queue.push_elements(2, |push| {
    ///     push(b"GET");
    ///     push(b"k");
    /// });
    /// let request = queue.iter().next().unwrap();
    /// assert_eq!(request.name(), b"GET");
    /// assert_eq!(request.args().collect::<Vec<_>>(), [b"k"]);
    /// ```
    pub fn push_elements(&mut self, count: usize, elements: impl FnOnce(&mut dyn FnMut(&[u8]))) {
        elements(&mut |element| encode_bulk(element, &mut self.elements));
        self.requests.push((self.elements.len(), count as u32));
    }

    /// Removes all requests, and keeps the memory.
    pub fn clear(&mut self) {
        self.elements.clear();
        self.requests.clear();
    }

    /// The number of requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether there is no request.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// The bytes of the requests in multibulk form, without their heads.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.elements.len()
    }

    /// Bytes of memory that the queue takes.
    #[must_use]
    pub fn held(&self) -> usize {
        self.elements.capacity() + self.requests.capacity() * size_of::<(usize, u32)>()
    }

    /// The requests, in the order in which they were appended.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Request<'_>> {
        let mut start = 0;
        self.requests.iter().map(move |&(end, count)| {
            let elements = self.elements.get(start..end).unwrap_or(b"");
            start = end;
            Request::new(elements, count)
        })
    }
}
