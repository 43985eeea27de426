//! Commands on the bits of values. Bit 0 is the top bit of the first byte.

use super::ReplyForm;
use super::form::{ReplyShape, bit};
use super::operation::{Operation, Parsed, decided};
use super::strings::{MAX_VALUE, rewrite, value_of};
use super::{Context, MAX_READ, first, text, until_nul};
use crate::codec::Parse;
use corewise_engine::Engine;
use corewise_ops::{
    Decided, Decision, Delete, Edit, Get, ItemView, Outcome, Store, StoreMode, StoreRule, Verb,
};
use corewise_wire::Tally;
use corewise_wire::resp::{Args, parse_integer};

mod error {
    pub(super) const OFFSET: &str = "ERR bit offset is not an integer or out of range";
    pub(super) const BIT: &str = "ERR bit is not an integer or out of range";
    pub(super) const ONE_OR_ZERO: &str = "ERR The bit argument must be 1 or 0.";
    pub(super) const OVERFLOW: &str = "ERR Invalid OVERFLOW type specified";
    pub(super) const READ_ONLY: &str = "ERR BITFIELD_RO only supports the GET subcommand";
    pub(super) const TYPE: &str = "ERR Invalid bitfield type. Use something like i16 u8. Note \
                                   that u64 is not supported but i64 is.";
    pub(super) const MUCH: &str = "ERR BITOP reads too many bytes";
    pub(super) const NOT: &str = "ERR BITOP NOT must be called with a single source key.";
}

/// A value of the most bytes has as many bits as `u32` has numbers.
const _: () = assert!(MAX_VALUE << 3 == 1 << u32::BITS);

/// Reads the number of a bit, which `#` before it multiplies with the `width` of a field.
fn offset_of(text: &[u8], width: Option<u32>) -> Result<u32, &'static str> {
    let (digits, factor) = match (text, width) {
        ([b'#', digits @ ..], Some(width)) => (digits, i64::from(width)),
        _ => (text, 1),
    };
    parse_integer(digits)
        .and_then(|offset| offset.checked_mul(factor))
        .and_then(|offset| u32::try_from(offset).ok())
        .ok_or(error::OFFSET)
}

fn set_bit(value: &mut [u8], at: u64, is_set: bool) {
    if let Some(byte) = value.get_mut((at >> 3) as usize) {
        let mask = 0x80 >> (at % 8);
        *byte = if is_set { *byte | mask } else { *byte & !mask };
    }
}

/// Whether a value that has the bit may be stored. Prints an error otherwise, before memory is
/// taken for it.
fn is_storable<E: Engine>(cx: &mut Context<'_, E>, last_bit: u64) -> bool {
    let fits = last_bit >> 3 < cx.shared.config.max_item_size as u64;
    if !fits {
        cx.error(ReplyForm::error_text(&Outcome::TooLarge));
    }
    fits
}

/// Stores the value unless the item has it: then Redis does not count the command as a write,
/// either.
fn rewrite_if_changed(old: Option<&ItemView<'_>>, new: &[u8]) -> Decision {
    if old.is_some_and(|old| old.value == new) {
        Decision::Keep
    } else {
        rewrite(old)
    }
}

/// Shows the string of a key; `None` if there is none. Returns false after it has printed that the
/// item is no string.
fn read<E: Engine>(
    cx: &mut Context<'_, E>,
    key: &[u8],
    mut look: impl FnMut(Option<&[u8]>),
) -> bool {
    let verb = Verb::Get(Get::default());
    let mut is_string = true;
    cx.operate(cx.tally, key, verb, |outcome| match outcome {
        Outcome::Found(view) => look(Some(view.value)),
        Outcome::WrongKind => is_string = false,
        _ => look(None),
    });
    if !is_string {
        cx.error(ReplyForm::error_text(&Outcome::WrongKind));
    }
    is_string
}

/// `GETBIT key offset`.
pub(super) fn getbit<'i>(mut args: Args<'i>, _: &Parse<'_>) -> Parsed<'i> {
    let [key, offset] = first(&mut args);
    let offset = offset_of(offset, None)?;
    Operation::read(key, ReplyShape::Bit(offset)).into()
}

/// `SETBIT key offset value`.
pub(super) fn setbit<'i>(mut args: Args<'i>, parse: &Parse<'_>) -> Parsed<'i> {
    let [key, offset, value] = first(&mut args);
    let offset = offset_of(offset, None)?;
    if !matches!(value, b"0" | b"1") {
        return Err(error::BIT.into());
    }
    // Before memory is taken for it.
    let len = i64::from(offset >> 3) + 1;
    if len as usize > parse.limits.memcached.max_item_size {
        return Err(ReplyForm::error_text(&Outcome::TooLarge).into());
    }
    let edit = Edit {
        decide: replace_bit,
        value,
        number: offset.into(),
        rule: StoreRule::default(),
        any_kind: false,
    };
    let operation = Operation::edit_with(key, edit, ReplyShape::Number);
    operation.writing_to(len)
}

/// Makes the bit at the number the one that the value is, after zeros if the item is shorter, and
/// reports the bit before.
fn replace_bit(
    edit: &Edit<'_>,
    old: Option<&ItemView<'_>>,
    new: &mut Vec<u8>,
) -> Result<Decided, &'static str> {
    let offset = edit.number as u64;
    new.extend_from_slice(value_of(old));
    let was_set = bit(new, offset);
    new.resize(new.len().max((offset >> 3) as usize + 1), 0);
    set_bit(new, offset, edit.value == b"1");
    decided(rewrite_if_changed(old, new), was_set.into())
}

/// The range of a command: the first bit, and the one behind the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: u64,
    end: u64,
}

impl Range {
    /// The bits from `start` to `end`, which count bytes or bits, include the last, and count from
    /// the end of the value if they are negative.
    fn new(start: i64, end: i64, value: &[u8], counts_bits: bool) -> Self {
        let unit = if counts_bits { 1 } else { 8 };
        let total = value.len() as i64 * 8 / unit;
        let place = |at: i64| {
            if at < 0 {
                at.saturating_add(total).max(0)
            } else {
                at
            }
        };
        let (start, end) = (place(start), place(end).min(total - 1));
        if start > end {
            return Self { start: 0, end: 0 };
        }
        Self {
            start: (start * unit) as u64,
            end: ((end + 1) * unit) as u64,
        }
    }

    /// The bits of the byte at `at` that are in the range.
    fn mask(self, at: usize) -> u8 {
        let from = self.start.saturating_sub(at as u64 * 8).min(8) as u32;
        let to = self.end.saturating_sub(at as u64 * 8).min(8) as u32;
        let behind = |bit: u32| (0xff_u32 >> bit) as u8;
        behind(from) & !behind(to)
    }

    /// The bytes that have bits in the range.
    fn bytes(self) -> std::ops::Range<usize> {
        (self.start / 8) as usize..self.end.div_ceil(8) as usize
    }

    fn count(self, value: &[u8]) -> u64 {
        let bytes = self.bytes();
        let values = value.get(bytes.clone()).unwrap_or(b"");
        if values.is_empty() {
            return 0;
        }
        let ones = |word: u64| u64::from(word.count_ones());
        let (words, rest) = values.as_chunks();
        let words = words.iter().map(|word| ones(u64::from_ne_bytes(*word)));
        let rest = rest.iter().map(|byte| ones(u64::from(*byte)));
        // Only the first byte and the last one may have bits outside.
        let outside = |at: usize| ones(u64::from(value[at] & !self.mask(at)));
        let last = bytes.end - 1;
        let behind = if last > bytes.start { outside(last) } else { 0 };
        words.chain(rest).sum::<u64>() - outside(bytes.start) - behind
    }

    /// The first bit that is, or is not, set.
    fn position(self, value: &[u8], is_set: bool) -> Option<u64> {
        let flip = if is_set { 0 } else { 0xff };
        let bytes = self.bytes();
        let wanted = |at: usize| {
            let bits = (value.get(at)? ^ flip) & self.mask(at);
            (bits != 0).then(|| at as u64 * 8 + u64::from(bits.leading_zeros()))
        };
        wanted(bytes.start).or_else(|| {
            let rest = value.get(bytes.start + 1..bytes.end)?;
            let skipped = rest.iter().position(|byte| *byte != flip)?;
            wanted(bytes.start + 1 + skipped)
        })
    }
}

/// Reads the unit of a range: whether it is the bit.
fn counts_bits(unit: &[u8]) -> Result<bool, &'static str> {
    if unit.eq_ignore_ascii_case(b"bit") {
        Ok(true)
    } else if unit.eq_ignore_ascii_case(b"byte") {
        Ok(false)
    } else {
        Err(text::SYNTAX)
    }
}

/// The number of set bits in the range that the arguments describe.
fn count(value: &[u8], mut args: Args<'_>) -> Result<u64, &'static str> {
    let given = args.len();
    let [start, end, unit] = first(&mut args);
    match given {
        0 => return Ok(Range::new(0, -1, value, false).count(value)),
        2 | 3 => {}
        _ => return Err(text::SYNTAX),
    }
    let start = parse_integer(start).ok_or(text::NOT_AN_INTEGER)?;
    let end = parse_integer(end).ok_or(text::NOT_AN_INTEGER)?;
    if start < 0 && end < 0 && start > end {
        return Ok(0);
    }
    let counts_bits = given == 3 && counts_bits(unit)?;
    Ok(Range::new(start, end, value, counts_bits).count(value))
}

/// `BITCOUNT key [start end [BYTE | BIT]]`. As in Redis, the range is read only if there is a value.
pub(super) fn bitcount<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key] = first(&mut args);
    let mut result = Ok(0);
    let is_read = read(cx, key, |value| {
        result = value.map_or(Ok(0), |value| count(value, args))
    });
    if !is_read {
        return;
    }
    match result {
        Ok(count) => cx.reply().integer(count as i64),
        Err(text) => cx.error(text),
    }
}

/// The position of the first bit in the range that the arguments describe, -1 if there is none.
fn position(value: &[u8], is_set: bool, mut args: Args<'_>) -> Result<i64, &'static str> {
    let given = args.len();
    let [start, end, unit] = first(&mut args);
    if given > 3 {
        return Err(text::SYNTAX);
    }
    let integer = |text| parse_integer(text).ok_or(text::NOT_AN_INTEGER);
    let start = if given > 0 { integer(start)? } else { 0 };
    let counts_bits = given > 2 && counts_bits(unit)?;
    let end = if given > 1 { integer(end)? } else { -1 };
    let range = Range::new(start, end, value, counts_bits);
    let found = range.position(value, is_set).map(|at| at as i64);
    let is_open = given < 2 && !is_set && range.start < range.end;
    // Zeros follow a value whose end was not given.
    let behind = if is_open { range.end as i64 } else { -1 };
    Ok(found.unwrap_or(behind))
}

/// `BITPOS key bit [start [end [BYTE | BIT]]]`. As in Redis, the range is read only if there is a
/// value.
pub(super) fn bitpos<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key, bit] = first(&mut args);
    let is_set = match parse_integer(bit) {
        Some(0) => false,
        Some(1) => true,
        Some(_) => return cx.error(error::ONE_OR_ZERO),
        None => return cx.error(text::NOT_AN_INTEGER),
    };
    let mut result = Ok(0);
    let is_read = read(cx, key, |value| {
        let of_nothing = Ok(if is_set { -1 } else { 0 });
        result = value.map_or(of_nothing, |value| position(value, is_set, args));
    });
    if !is_read {
        return;
    }
    match result {
        Ok(position) => cx.reply().integer(position),
        Err(text) => cx.error(text),
    }
}

/// What happens to a number that does not fit its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Get,
    Set(i64),
    Increment(i64),
}

/// A field of a value.
#[derive(Clone, Copy, Debug)]
struct Field {
    is_signed: bool,
    /// 1 to 64; to 63 if it is not signed.
    width: u32,
    offset: u64,
}

impl Field {
    fn parse(kind: &[u8], offset: &[u8]) -> Result<Self, &'static str> {
        let (is_signed, width) = match until_nul(kind) {
            [b'i', width @ ..] => (true, width),
            [b'u', width @ ..] => (false, width),
            _ => return Err(error::TYPE),
        };
        let most = if is_signed { 64 } else { 63 };
        let width = parse_integer(width).filter(|width| (1..=most).contains(width));
        let width = width.ok_or(error::TYPE)? as u32;
        Ok(Self {
            is_signed,
            width,
            offset: offset_of(offset, Some(width))?.into(),
        })
    }

    fn last_bit(self) -> u64 {
        self.offset + u64::from(self.width) - 1
    }

    /// The least and the greatest number that fit.
    fn limits(self) -> (i128, i128) {
        if self.is_signed {
            (-1 << (self.width - 1), (1 << (self.width - 1)) - 1)
        } else {
            (0, (1 << self.width) - 1)
        }
    }

    /// The number that the low bits of another are.
    fn wrap(self, number: i128) -> i128 {
        let (_, greatest) = self.limits();
        let low = number & ((1 << self.width) - 1);
        if low > greatest {
            low - (1 << self.width)
        } else {
            low
        }
    }

    fn get(self, value: &[u8]) -> i128 {
        let bits = (self.offset..=self.last_bit()).map(|at| i128::from(bit(value, at)));
        self.wrap(bits.fold(0, |number, bit| number << 1 | bit))
    }

    fn set(self, value: &mut [u8], number: i128) {
        for (index, at) in (self.offset..=self.last_bit()).rev().enumerate() {
            set_bit(value, at, number >> index & 1 == 1);
        }
    }

    /// The number that is stored for `number`; `None` if it must not be stored.
    fn fit(self, number: i128, overflow: Overflow) -> Option<i128> {
        let (least, greatest) = self.limits();
        match overflow {
            _ if (least..=greatest).contains(&number) => Some(number),
            Overflow::Wrap => Some(self.wrap(number)),
            Overflow::Saturate => Some(number.clamp(least, greatest)),
            Overflow::Fail => None,
        }
    }
}

/// One subcommand of `BITFIELD`.
#[derive(Clone, Copy, Debug)]
struct FieldCommand {
    field: Field,
    action: Action,
    overflow: Overflow,
}

impl FieldCommand {
    /// Changes the value and returns the reply.
    fn execute(self, value: &mut [u8]) -> Option<i64> {
        let old = self.field.get(value);
        let (new, replies_new) = match self.action {
            Action::Get => return Some(old as i64),
            // An unsigned field reads a negative number as one that is too large.
            Action::Set(new) if !self.field.is_signed => (i128::from(new as u64), false),
            Action::Set(new) => (i128::from(new), false),
            Action::Increment(by) => (old + i128::from(by), true),
        };
        let new = self.field.fit(new, self.overflow)?;
        self.field.set(value, new);
        Some(if replies_new { new } else { old } as i64)
    }

    fn writes(&self) -> bool {
        !matches!(self.action, Action::Get)
    }
}

/// Reads the subcommands of `BITFIELD`.
fn field_commands(mut args: Args<'_>) -> Result<Vec<FieldCommand>, &'static str> {
    let mut commands = Vec::new();
    let mut overflow = Overflow::Wrap;
    while let Some(name) = args.next() {
        let name = name.to_ascii_lowercase();
        match (name.as_slice(), args.len()) {
            (b"get", 2..) | (b"set" | b"incrby", 3..) => {}
            (b"overflow", 1..) => {
                let [word] = first(&mut args);
                overflow = match word.to_ascii_lowercase().as_slice() {
                    b"wrap" => Overflow::Wrap,
                    b"sat" => Overflow::Saturate,
                    b"fail" => Overflow::Fail,
                    _ => return Err(error::OVERFLOW),
                };
                continue;
            }
            _ => return Err(text::SYNTAX),
        }
        let [kind, offset] = first(&mut args);
        let field = Field::parse(kind, offset)?;
        let mut number = || {
            let [number] = first(&mut args);
            parse_integer(number).ok_or(text::NOT_AN_INTEGER)
        };
        let action = match name[0] {
            b'g' => Action::Get,
            b's' => Action::Set(number()?),
            _ => Action::Increment(number()?),
        };
        commands.push(FieldCommand {
            field,
            action,
            overflow,
        });
    }
    Ok(commands)
}

/// The length of a value that these arguments of `BITFIELD` write, at least.
pub(super) fn written_bytes(mut args: Args<'_>) -> usize {
    let _key = args.next();
    let commands = field_commands(args).unwrap_or_default();
    let written = commands.iter().filter(|command| command.writes());
    let last = written.map(|command| command.field.last_bit()).max();
    last.map_or(0, |last| (last >> 3) as usize + 1)
}

/// `BITFIELD key [GET type offset | [OVERFLOW WRAP | SAT | FAIL] SET type offset value | INCRBY
/// type offset increment] …`.
pub(super) fn bitfield<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    fields(cx, args, true);
}

/// `BITFIELD_RO key [GET type offset] …`.
pub(super) fn bitfield_ro<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    fields(cx, args, false);
}

fn fields<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>, may_write: bool) {
    let [key] = first(&mut args);
    let commands = match field_commands(args) {
        Ok(commands) => commands,
        Err(text) => return cx.error(text),
    };
    let written = commands.iter().filter(|command| command.writes());
    let Some(last_bit) = written.map(|command| command.field.last_bit()).max() else {
        return read_fields(cx, key, &commands);
    };
    if !may_write {
        return cx.error(error::READ_ONLY);
    }
    if !is_storable(cx, last_bit) {
        return;
    }
    let mut replies = Vec::new();
    let done = cx.update(key, |old, new| {
        new.extend_from_slice(value_of(old));
        new.resize(new.len().max((last_bit >> 3) as usize + 1), 0);
        replies = commands
            .iter()
            .map(|command| command.execute(new))
            .collect();
        rewrite_if_changed(old, new)
    });
    if done {
        print_fields(cx, &replies);
    }
}

/// `BITFIELD` that only reads.
fn read_fields<E: Engine>(cx: &mut Context<'_, E>, key: &[u8], commands: &[FieldCommand]) {
    let mut replies = Vec::new();
    let is_read = read(cx, key, |value| {
        let value = value.unwrap_or(b"");
        let get = |command: &FieldCommand| Some(command.field.get(value) as i64);
        replies = commands.iter().map(get).collect();
    });
    if is_read {
        print_fields(cx, &replies);
    }
}

fn print_fields<E: Engine>(cx: &mut Context<'_, E>, replies: &[Option<i64>]) {
    let mut reply = cx.reply();
    reply.array(replies.len());
    for number in replies {
        match number {
            Some(number) => reply.integer(*number),
            None => reply.null(),
        }
    }
}

/// What `BITOP` does with values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    And,
    Or,
    Xor,
    Not,
}

impl Operator {
    fn parse(word: &[u8]) -> Option<Self> {
        match word.to_ascii_lowercase().as_slice() {
            b"and" => Some(Self::And),
            b"or" => Some(Self::Or),
            b"xor" => Some(Self::Xor),
            b"not" => Some(Self::Not),
            _ => None,
        }
    }

    /// Combines two values, of which the shorter one is followed by zeros.
    fn combine(self, a: &mut Vec<u8>, b: &[u8]) {
        a.resize(a.len().max(b.len()), 0);
        let (both, behind) = a.split_at_mut(b.len());
        let pairs = both.iter_mut().zip(b);
        match self {
            Self::And => {
                pairs.for_each(|(a, b)| *a &= b);
                behind.fill(0);
            }
            Self::Or => pairs.for_each(|(a, b)| *a |= b),
            Self::Xor => pairs.for_each(|(a, b)| *a ^= b),
            Self::Not => {}
        }
    }
}

/// `BITOP AND | OR | XOR | NOT destination key …`. Atomic.
pub(super) fn bitop<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [operator, destination] = first(&mut args);
    let operator = match Operator::parse(operator) {
        Some(Operator::Not) if args.len() != 1 => return cx.error(error::NOT),
        Some(operator) => operator,
        None => return cx.error(text::SYNTAX),
    };
    let keys = std::iter::once(destination).chain(args);
    let len = cx.atomically(keys, |cx| {
        let result = combination(cx, args, operator)?;
        store_bits(cx, destination, &result).then_some(result.len())
    });
    if let Some(len) = len {
        cx.reply().integer(len as i64);
    }
}

/// Combines the values of keys; `None` after it has printed that one is no string, or that it would
/// have to read more than a call may.
fn combination<E: Engine>(
    cx: &mut Context<'_, E>,
    keys: Args<'_>,
    operator: Operator,
) -> Option<Vec<u8>> {
    let most = MAX_READ.max(4 * cx.shared.config.max_item_size);
    let mut result: Option<Vec<u8>> = None;
    let mut bytes = 0;
    for key in keys {
        bytes += result.as_ref().map_or(0, Vec::len);
        if bytes > most {
            cx.error(error::MUCH);
            return None;
        }
        let is_read = read(cx, key, |value| {
            let value = value.unwrap_or(b"");
            match &mut result {
                Some(before) => operator.combine(before, value),
                None => result = Some(value.to_vec()),
            }
        });
        if !is_read {
            return None;
        }
    }
    let mut result = result.unwrap_or_default();
    if operator == Operator::Not {
        result.iter_mut().for_each(|byte| *byte = !*byte);
    }
    Some(result)
}

/// Stores a value, or deletes the key if it is empty. Returns false after it has printed an error.
fn store_bits<E: Engine>(cx: &mut Context<'_, E>, key: &[u8], value: &[u8]) -> bool {
    if value.is_empty() {
        cx.operate(Tally::None, key, Verb::Delete(Delete::default()), |_| {});
        return true;
    }
    let verb = Verb::Store(Store::new(StoreMode::Overwrite, value));
    let mut failure = None;
    cx.operate(Tally::None, key, verb, |outcome| {
        failure = (!matches!(outcome, Outcome::Stored(_))).then(|| ReplyForm::error_text(outcome));
    });
    failure.inspect(|text| cx.error(text)).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bits(value: &[u8]) -> Vec<bool> {
        (0..value.len() as u64 * 8)
            .map(|at| bit(value, at))
            .collect()
    }

    fn field(is_signed: bool, width: u32, offset: u64) -> Field {
        Field {
            is_signed,
            width,
            offset,
        }
    }

    #[test]
    fn values_are_combined_as_if_zeros_followed_them() {
        for (operator, expected) in [
            (Operator::And, [0b1000, 0, 0]),
            (Operator::Or, [0b1110, 0b0011, 7]),
            (Operator::Xor, [0b0110, 0b0011, 7]),
        ] {
            for (a, b) in [
                (&[0b1010, 0b0011, 7][..], &[0b1100][..]),
                (&[0b1100], &[0b1010, 0b0011, 7]),
            ] {
                let mut result = a.to_vec();
                operator.combine(&mut result, b);
                assert_eq!(result, expected, "{operator:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn ranges_are_counted_and_searched_bit_by_bit(
            value in proptest::collection::vec(
                prop_oneof![Just(0), Just(0xff), any::<u8>()],
                0..40,
            ),
            start in -400_i64..400,
            end in -400_i64..400,
        ) {
            let all = bits(&value);
            let total = all.len() as i64;
            let place = |at: i64| if at < 0 { (at + total).max(0) } else { at };
            let (from, to) = (place(start), place(end).min(total - 1));
            let wanted: Vec<i64> = (from..=to).collect();
            let range = Range::new(start, end, &value, true);
            let is_set = |at: &&i64| all[**at as usize];
            prop_assert_eq!(range.count(&value), wanted.iter().filter(is_set).count() as u64);
            for set in [false, true] {
                let expected = wanted.iter().find(|at| is_set(at) == set).map(|at| *at as u64);
                prop_assert_eq!(range.position(&value, set), expected);
            }
        }

        #[test]
        fn fields_keep_numbers_and_what_is_beside_them(
            value in proptest::collection::vec(any::<u8>(), 12),
            number in any::<i64>(),
            offset in 0_u64..32,
            width in 1_u32..64,
            is_signed in any::<bool>(),
        ) {
            let field = field(is_signed, width, offset);
            let mut changed = value.clone();
            let stored = field.fit(i128::from(number), Overflow::Wrap).unwrap();
            field.set(&mut changed, stored);
            prop_assert_eq!(field.get(&changed), stored);
            prop_assert_eq!((stored - i128::from(number)) % (1 << width), 0);
            for at in (0..96).filter(|at| !(offset..=field.last_bit()).contains(at)) {
                prop_assert_eq!(bit(&changed, at), bit(&value, at));
            }
        }
    }

    #[test]
    fn numbers_that_do_not_fit_wrap_saturate_or_fail() {
        let signed = field(true, 8, 0);
        assert_eq!(signed.fit(128, Overflow::Wrap), Some(-128));
        assert_eq!(signed.fit(128, Overflow::Saturate), Some(127));
        assert_eq!(signed.fit(-129, Overflow::Saturate), Some(-128));
        assert_eq!(signed.fit(128, Overflow::Fail), None);
        assert_eq!(signed.fit(-128, Overflow::Fail), Some(-128));
        let unsigned = field(false, 3, 0);
        assert_eq!(unsigned.fit(9, Overflow::Wrap), Some(1));
        assert_eq!(unsigned.fit(-1, Overflow::Wrap), Some(7));
        assert_eq!(unsigned.fit(-1, Overflow::Saturate), Some(0));
        assert_eq!(unsigned.fit(9, Overflow::Saturate), Some(7));
        let widest = field(true, 64, 0);
        let greatest = i128::from(i64::MAX);
        assert_eq!(
            widest.fit(greatest + 1, Overflow::Wrap),
            Some(i128::from(i64::MIN))
        );
    }
}
