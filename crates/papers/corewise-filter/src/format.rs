//! The byte format of a filter, version 2.
//!
//! ```text
//!  0  magic "CWCF"        16  seed u64
//!  4  version u16 = 2     24  buckets u64
//!  6  slots of a bucket   32  items u64
//!  7  bits                40  words u64
//!  8  flags u32           48  zero u64
//! 12  search limit u32    56  checksum u64
//! 64  the words, u64 each
//! ```
//!
//! Numbers are little-endian. Flag 1: semi-sorted; the others are zero. The checksum is the
//! [`FilterHasher`] with seed 0 of the eight words of the header, with zero for the checksum, and
//! of all other words.
//!
//! A loader allocates nothing before it has checked the header against the length of its input, or
//! the bound of its caller. Bytes that no filter could have written are an error, even if their
//! checksum is right: all lookups and updates may rely on what a filter's own words promise.

use std::error::Error;
use std::fmt;
use std::hash::Hasher;
use std::io::{self, Read};

use crate::filter::CuckooFilter;
use crate::hash::FilterHasher;
use crate::path::MAX_SEARCH_LIMIT;
use crate::shape::{BuildError, FilterShape, MAX_BUCKETS};

const MAGIC: [u8; 4] = *b"CWCF";
const VERSION: u16 = 2;
const SEMI_SORTED: u32 = 1;
const HEADER_BYTES: usize = 64;
const HEADER_WORDS: usize = HEADER_BYTES / 8;
/// Bytes that are read at a time.
const READ_BYTES: usize = 1 << 20;

/// Why bytes are not a filter.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// They begin with other bytes than those of a filter.
    Magic,
    /// This version of the crate does not know their version of the format, which is the number. It
    /// reads version 2.
    Version(u16),
    /// There are more or fewer than the header says.
    Length,
    /// The filter takes more bytes than the caller allows.
    TooLarge {
        /// The size of the whole filter in bytes.
        bytes: u64,
    },
    /// The checksum is wrong: some byte has changed.
    Checksum,
    /// No filter could have written them.
    Content,
    /// The system has no memory for the filter.
    NoMemory,
    /// The reader failed.
    Io(io::Error),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => f.write_str("not the bytes of a filter"),
            Self::Version(version) => write!(f, "version {version} of the format is unknown"),
            Self::Length => f.write_str("the filter has another length than its header says"),
            Self::TooLarge { bytes } => write!(f, "the filter takes {bytes} bytes: too many"),
            Self::Checksum => f.write_str("the checksum of the filter is wrong"),
            Self::Content => f.write_str("the filter is inconsistent"),
            Self::NoMemory => f.write_str("no memory for the filter"),
            Self::Io(error) => write!(f, "the filter could not be read: {error}"),
        }
    }
}

impl Error for LoadError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// What the first 64 bytes say.
struct FilterHeader {
    shape: FilterShape,
    search_limit: u32,
    seed: u64,
    items: u64,
    checksum: u64,
}

impl FilterHeader {
    fn words(&self, checksum: u64) -> [u64; HEADER_WORDS] {
        let [m0, m1, m2, m3] = MAGIC;
        let [v0, v1] = VERSION.to_le_bytes();
        let shape = &self.shape;
        // Both fit a byte.
        let first = [
            m0,
            m1,
            m2,
            m3,
            v0,
            v1,
            shape.bucket_slots as u8,
            shape.bits as u8,
        ];
        let flags = if shape.is_semi_sorted { SEMI_SORTED } else { 0 };
        [
            u64::from_le_bytes(first),
            u64::from(flags) | u64::from(self.search_limit) << 32,
            self.seed,
            shape.buckets.into(),
            self.items,
            shape.words(),
            0,
            checksum,
        ]
    }

    /// A hasher that has taken the header.
    fn checksum(&self) -> FilterHasher {
        let mut hasher = FilterHasher::new(0);
        self.words(0)
            .into_iter()
            .for_each(|word| hasher.write_u64(word));
        hasher
    }

    fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, LoadError> {
        if bytes[..4] != MAGIC {
            return Err(LoadError::Magic);
        }
        let version = u16::from_le_bytes([bytes[4], bytes[5]]);
        if version != VERSION {
            return Err(LoadError::Version(version));
        }
        let word = |index: usize| {
            let bytes = bytes[8 * index..].first_chunk().expect("eight bytes");
            u64::from_le_bytes(*bytes)
        };
        let [flags, search_limit] = [word(1) as u32, (word(1) >> 32) as u32];
        let (buckets, bucket_slots) = (word(3), u32::from(bytes[6]));
        let is_even = buckets.is_multiple_of(2) && (2..=MAX_BUCKETS.into()).contains(&buckets);
        let is_known = flags & !SEMI_SORTED == 0 && word(6) == 0;
        let is_searchable = (2..=MAX_SEARCH_LIMIT).contains(&(search_limit as usize));
        if !is_even || !is_known || !is_searchable {
            return Err(LoadError::Content);
        }
        let slots = buckets * u64::from(bucket_slots);
        let is_semi_sorted = flags & SEMI_SORTED != 0;
        let shape = FilterShape::with_slots(slots, bucket_slots, bytes[7].into(), is_semi_sorted);
        let header = Self {
            shape: shape.map_err(|_| LoadError::Content)?,
            search_limit,
            seed: word(2),
            items: word(4),
            checksum: word(7),
        };
        let is_right = header.items <= slots && header.shape.words() == word(5);
        is_right.then_some(header).ok_or(LoadError::Content)
    }

    /// The bytes of the whole filter.
    fn total_bytes(&self) -> u64 {
        HEADER_BYTES as u64 + self.shape.words() * 8
    }
}

impl CuckooFilter {
    /// The bytes of the filter at one moment: updates wait meanwhile, lookups do not.
    ///
    /// Equal filters give equal bytes, on every machine.
    ///
    /// Complexity: copies the filter, under all locks.
    ///
    /// ```
    /// use corewise_filter::CuckooFilter;
    /// let filter = CuckooFilter::with_fpr(1_000, 0.001)?;
    /// filter.insert("item")?;
    /// let loaded = CuckooFilter::from_bytes(&filter.to_bytes())?;
    /// assert!(loaded.contains("item"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let (words, items) = self.table.snapshot();
        let header = FilterHeader {
            shape: self.shape,
            search_limit: self.search_limit as u32,
            seed: self.seed,
            items: items as u64,
            checksum: 0,
        };
        let mut hasher = header.checksum();
        words.iter().for_each(|word| hasher.write_u64(*word));
        let all = header.words(hasher.finish()).into_iter().chain(words);
        all.flat_map(u64::to_le_bytes).collect()
    }

    /// The filter with these bytes, from [`to_bytes`](Self::to_bytes).
    ///
    /// # Errors
    ///
    /// If the bytes are those of no filter; see [`LoadError`]. Never allocates more than the
    /// filter of a right length takes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, LoadError> {
        let (first, rest) = bytes.split_first_chunk().ok_or(LoadError::Length)?;
        let header = FilterHeader::parse(first)?;
        if header.total_bytes() != bytes.len() as u64 {
            return Err(LoadError::Length);
        }
        Self::load(&header, rest)
    }

    /// Reads a filter from `reader`, up to its last byte and no further.
    ///
    /// # Errors
    ///
    /// As [`from_bytes`](Self::from_bytes); also if the filter takes more than `max_bytes`, before
    /// memory is allocated for it, or if `reader` fails.
    ///
    /// ```
    /// use corewise_filter::CuckooFilter;
    /// let filter = CuckooFilter::with_fpr(1_000, 0.001)?;
    /// let bytes = filter.to_bytes();
    /// let loaded = CuckooFilter::read_from(&bytes[..], 1 << 20)?;
    /// assert_eq!(loaded.slots(), filter.slots());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_from(mut reader: impl Read, max_bytes: u64) -> Result<Self, LoadError> {
        let mut first = [0; HEADER_BYTES];
        read(&mut reader, &mut first)?;
        let header = FilterHeader::parse(&first)?;
        let bytes = header.total_bytes();
        if bytes > max_bytes {
            return Err(LoadError::TooLarge { bytes });
        }
        Self::load(&header, reader)
    }

    fn load(header: &FilterHeader, mut reader: impl Read) -> Result<Self, LoadError> {
        let shape = header.shape;
        let limit = header.search_limit as usize;
        let filter = Self::with_shape(shape, header.seed, limit, shape.stripes());
        let filter = filter.map_err(|error| match error {
            BuildError::NoMemory => LoadError::NoMemory,
            _ => LoadError::Content,
        })?;
        let mut hasher = header.checksum();
        let mut left = shape.words() * 8;
        let mut buffer = vec![0; READ_BYTES.min(left as usize)];
        let mut next = 0;
        while left > 0 {
            // No more than the buffer.
            let bytes = &mut buffer[..left.min(READ_BYTES as u64) as usize];
            read(&mut reader, bytes)?;
            for word in bytes.as_chunks().0 {
                let word = u64::from_le_bytes(*word);
                hasher.write_u64(word);
                filter.table.load_word(next, word);
                next += 1;
            }
            left -= bytes.len() as u64;
        }
        if hasher.finish() != header.checksum {
            return Err(LoadError::Checksum);
        }
        let is_right = filter.table.count_loaded(&shape) == Some(header.items);
        is_right.then_some(filter).ok_or(LoadError::Content)
    }
}

/// Fills the buffer; an early end is a wrong length.
fn read(reader: &mut impl Read, buffer: &mut [u8]) -> Result<(), LoadError> {
    reader
        .read_exact(buffer)
        .map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => LoadError::Length,
            _ => LoadError::Io(error),
        })
}

#[cfg(feature = "serde")]
mod with_serde {
    use super::*;
    use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
    use serde::ser::{Serialize, Serializer};

    /// As the bytes of [`CuckooFilter::to_bytes`].
    impl Serialize for CuckooFilter {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(&self.to_bytes())
        }
    }

    /// From the bytes of [`CuckooFilter::to_bytes`], or a sequence of them.
    impl<'de> Deserialize<'de> for CuckooFilter {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_byte_buf(FilterVisitor)
        }
    }

    struct FilterVisitor;

    impl<'de> Visitor<'de> for FilterVisitor {
        type Value = CuckooFilter;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the bytes of a cuckoo filter")
        }

        fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<CuckooFilter, E> {
            CuckooFilter::from_bytes(bytes).map_err(E::custom)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut bytes: A) -> Result<CuckooFilter, A::Error> {
            // No room in advance: the length that a sequence claims may be wrong.
            let mut all = Vec::new();
            while let Some(byte) = bytes.next_element::<u8>()? {
                all.push(byte);
            }
            self.visit_bytes(&all)
        }
    }
}
