//! A model engine, a few lines per verb, and a driver that feeds it from a codec, like a server
//! without sockets, threads or eviction.
#![allow(dead_code, reason = "each user takes a part")]

use std::collections::HashMap;

use bumpalo::Bump;
use corewise_ops::{
    Absence, Arith, Deadline, Delete, Flow, Get, ItemFlags, ItemView, Now, Op, Outcome, ReplySink,
    Store, StoreMode, Verb,
};
use corewise_wire::memcached::{self, Admin, Limits, ReplyWriter, StatsRequest, reply};
use corewise_wire::{Call, Codec, Form, Step, cphash};

pub(crate) const NOW: Now = Now {
    ms: 1_000_000,
    unix_s: 1_800_000_000,
};

#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) value: Vec<u8>,
    pub(crate) client_flags: u32,
    pub(crate) cas: u64,
    pub(crate) deadline: Deadline,
    pub(crate) flags: ItemFlags,
}

/// A table without eviction and without limit.
pub(crate) struct Model {
    pub(crate) items: HashMap<Vec<u8>, Item>,
    last_cas: u64,
}

impl Default for Model {
    /// Cas values start at a number that no test guesses.
    fn default() -> Self {
        Self {
            items: HashMap::new(),
            last_cas: 1000,
        }
    }
}

fn view<'a>(key: &'a [u8], item: &'a Item) -> ItemView<'a> {
    ItemView {
        key,
        value: &item.value,
        client_flags: item.client_flags,
        cas: item.cas,
        deadline: item.deadline,
        idle_s: 0,
        flags: item.flags,
        footprint: 64 + key.len() + item.value.len(),
        size_class: 1,
    }
}

fn without(flags: ItemFlags, gone: ItemFlags) -> ItemFlags {
    [
        ItemFlags::WON,
        ItemFlags::WIN_SENT,
        ItemFlags::STALE,
        ItemFlags::FETCHED,
    ]
    .into_iter()
    .filter(|bit| flags.contains(*bit) && !gone.contains(*bit))
    .fold(ItemFlags::NONE, ItemFlags::with)
}

impl Model {
    pub(crate) fn submit(&mut self, op: &Op<'_>, sink: &mut dyn ReplySink) -> Flow {
        let dead = self
            .items
            .get(op.key)
            .is_some_and(|item| item.deadline.is_past(NOW));
        if dead {
            self.items.remove(op.key);
        }
        match op.verb {
            Verb::Get(get) => self.get(op, get, sink),
            Verb::Store(store) => self.store(op, store, sink),
            Verb::Delete(delete) => self.delete(op, delete, sink),
            Verb::Arith(arith) => self.arith(op, arith, sink),
            Verb::Edit(_) => panic!("no command of memcached is an edit"),
        }
    }

    fn next_cas(&mut self, wanted: Option<u64>) -> u64 {
        self.last_cas += 1;
        wanted.unwrap_or(self.last_cas)
    }

    fn get(&mut self, op: &Op<'_>, get: Get, sink: &mut dyn ReplySink) -> Flow {
        if let Some(item) = self.items.get_mut(op.key) {
            if let Some(deadline) = get.touch {
                item.deadline = deadline;
            }
            let mut shown = item.clone();
            let unwon = !item.flags.contains(ItemFlags::WIN_SENT);
            let short = get.recache_below_ms.is_some_and(|below| {
                item.deadline
                    .remaining_ms(NOW)
                    .is_some_and(|left| left < below)
            });
            let stale = get.claim_stale && item.flags.contains(ItemFlags::STALE);
            if unwon && (short || stale) {
                shown.flags = shown.flags.with(ItemFlags::WON);
                item.flags = item.flags.with(ItemFlags::WIN_SENT);
            }
            if !get.quiet {
                item.flags = item.flags.with(ItemFlags::FETCHED);
            }
            return sink.complete(op.token, Outcome::Found(view(op.key, &shown)));
        }
        let Some(vivify) = get.vivify else {
            return sink.complete(op.token, Outcome::Missing(Absence::Unknown));
        };
        let cas = self.next_cas(vivify.new_cas);
        let mut item = Item {
            value: Vec::new(),
            client_flags: 0,
            cas,
            deadline: vivify.deadline,
            flags: ItemFlags::WON,
        };
        let flow = sink.complete(op.token, Outcome::Found(view(op.key, &item)));
        item.flags = ItemFlags::WIN_SENT.with(ItemFlags::FETCHED);
        self.items.insert(op.key.to_vec(), item);
        flow
    }

    fn store(&mut self, op: &Op<'_>, s: Store<'_>, sink: &mut dyn ReplySink) -> Flow {
        let old = self.items.get(op.key).cloned();
        let joins = matches!(s.mode, StoreMode::Append | StoreMode::Prepend);
        let mut flags = ItemFlags::NONE;
        let mut deadline = s.deadline;
        match (&old, s.compare_cas) {
            (None, Some(_)) => return sink.complete(op.token, Outcome::Missing(Absence::Unknown)),
            (Some(item), Some(cas)) if item.cas != cas => {
                if !(s.stale_if_older && cas < item.cas) {
                    return sink.complete(op.token, Outcome::Exists);
                }
                flags = item.flags.with(ItemFlags::STALE);
                deadline = item.deadline;
            }
            _ => {}
        }
        let refused = match (s.mode, &old) {
            (StoreMode::Add, Some(_)) | (StoreMode::Replace, None) => true,
            (StoreMode::Append | StoreMode::Prepend, None) => s.vivify.is_none(),
            _ => false,
        };
        if refused {
            return sink.complete(op.token, Outcome::NotStored);
        }
        let (value, client_flags, deadline) = match (s.mode, old) {
            (StoreMode::Append, Some(o)) => {
                ([&o.value[..], s.value].concat(), o.client_flags, o.deadline)
            }
            (StoreMode::Prepend, Some(o)) => {
                ([s.value, &o.value[..]].concat(), o.client_flags, o.deadline)
            }
            (_, None) if joins => (
                s.value.to_vec(),
                s.client_flags,
                s.vivify.unwrap_or(Deadline::NEVER),
            ),
            _ => (s.value.to_vec(), s.client_flags, deadline),
        };
        let cas = self.next_cas(s.new_cas);
        let item = Item {
            value,
            client_flags,
            cas,
            deadline,
            flags,
        };
        let flow = sink.complete(op.token, Outcome::Stored(view(op.key, &item)));
        self.items.insert(op.key.to_vec(), item);
        flow
    }

    fn delete(&mut self, op: &Op<'_>, d: Delete, sink: &mut dyn ReplySink) -> Flow {
        let Some(item) = self.items.get_mut(op.key) else {
            return sink.complete(op.token, Outcome::Missing(Absence::Unknown));
        };
        if d.compare_cas.is_some_and(|cas| cas != item.cas) {
            return sink.complete(op.token, Outcome::Exists);
        }
        if !d.mark_stale && !d.drop_value {
            self.items.remove(op.key);
            return sink.complete(op.token, Outcome::Deleted);
        }
        if d.drop_value {
            item.value.clear();
            item.client_flags = 0;
        }
        if d.mark_stale {
            item.flags = without(item.flags, ItemFlags::WIN_SENT).with(ItemFlags::STALE);
            item.deadline = d.touch.unwrap_or(item.deadline);
        }
        self.last_cas += 1;
        item.cas = d.new_cas.unwrap_or(self.last_cas);
        sink.complete(op.token, Outcome::Stored(view(op.key, item)))
    }

    fn arith(&mut self, op: &Op<'_>, a: Arith, sink: &mut dyn ReplySink) -> Flow {
        let cas = self.next_cas(a.new_cas);
        if let Some(item) = self.items.get_mut(op.key) {
            if a.compare_cas.is_some_and(|cas| cas != item.cas) {
                return sink.complete(op.token, Outcome::Exists);
            }
            let text = std::str::from_utf8(&item.value)
                .unwrap_or("")
                .trim_end_matches(' ');
            let Ok(old) = text.parse::<u64>() else {
                return sink.complete(op.token, Outcome::NonNumeric);
            };
            let value = if a.decrement {
                old.saturating_sub(a.delta)
            } else {
                old.wrapping_add(a.delta)
            };
            item.value = format!("{value:<width$}", width = item.value.len()).into_bytes();
            item.cas = cas;
            item.deadline = a.touch.unwrap_or(item.deadline);
            return sink.complete(
                op.token,
                Outcome::Counter {
                    value,
                    view: view(op.key, item),
                },
            );
        }
        let Some((value, deadline)) = a.vivify else {
            return sink.complete(op.token, Outcome::Missing(Absence::Unknown));
        };
        let flags = ItemFlags::NONE;
        let text = value.to_string().into_bytes();
        let item = Item {
            value: text,
            client_flags: 0,
            cas,
            deadline,
            flags,
        };
        let flow = sink.complete(
            op.token,
            Outcome::Counter {
                value,
                view: view(op.key, &item),
            },
        );
        self.items.insert(op.key.to_vec(), item);
        flow
    }
}

/// One connection to a model.
pub(crate) struct Session {
    pub(crate) codec: Codec,
    pub(crate) limits: corewise_wire::Limits,
    pub(crate) model: Model,
    pub(crate) unread: Vec<u8>,
    pub(crate) out: Vec<u8>,
    pub(crate) closed: bool,
    /// Whether unfinished requests are refused.
    pub(crate) no_room: bool,
    /// The minimum length of input for another step.
    need: usize,
}

impl Session {
    /// A client of memcached's protocol.
    pub(crate) fn new(authentication_required: bool, limits: Limits) -> Self {
        Self::with(memcached::Codec::new(authentication_required), limits)
    }

    /// A client of \[CPHASH\]'s protocol.
    pub(crate) fn cphash(limits: Limits) -> Self {
        Self::with(cphash::Codec::default(), limits)
    }

    fn with(codec: impl Into<Codec>, limits: impl Into<corewise_wire::Limits>) -> Self {
        Self {
            codec: codec.into(),
            limits: limits.into(),
            model: Model::default(),
            unread: Vec::new(),
            out: Vec::new(),
            closed: false,
            no_room: false,
            need: 1,
        }
    }

    /// Takes input, executes the complete requests, and keeps the rest.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        if self.closed {
            return;
        }
        self.unread.extend_from_slice(bytes);
        if self.unread.len() < self.need {
            return;
        }
        let scratch = Bump::new();
        let mut at = 0;
        self.need = loop {
            let mut step = self
                .codec
                .next(&self.unread[at..], &self.limits, NOW, &scratch);
            let rest = self.unread.len() - at;
            if self.no_room && rest > 0 && matches!(step, Step::Incomplete { .. }) {
                step = self
                    .codec
                    .refuse(&self.unread[at..], &self.limits, NOW, &scratch);
            }
            at += match step {
                Step::Incomplete { need } => {
                    assert!(need > rest, "asked for {need} bytes with {rest} there");
                    break need;
                }
                Step::Skip { consumed } => consumed,
                Step::Frame { consumed, bytes } => {
                    self.out.extend_from_slice(bytes);
                    consumed
                }
                Step::Call { consumed, call } => {
                    let Call::Memcached(admin) = call else {
                        panic!("{call:?}")
                    };
                    admin_reply(&mut self.codec, admin, &mut self.model, &mut self.out);
                    consumed
                }
                Step::Close { reply } => {
                    self.out.extend_from_slice(reply);
                    self.closed = true;
                    break 1;
                }
                Step::Op {
                    consumed,
                    key,
                    verb,
                    form,
                } => {
                    assert!((1..=250).contains(&key.len()));
                    let forms: [Form<'_>; 1] = [form];
                    let mut sink = ReplyWriter::new(&forms, NOW, &mut self.out);
                    let flow = self.model.submit(
                        &Op {
                            token: 0,
                            key,
                            verb,
                        },
                        &mut sink,
                    );
                    assert_eq!((flow, sink.completed()), (Flow::Continue, 1));
                    consumed
                }
            };
            assert!(at <= self.unread.len(), "consumed more than there is");
        };
        self.unread.drain(..at);
    }
}

/// A short reply to each admin command, so that sessions can be compared.
fn admin_reply(codec: &mut Codec, admin: Admin<'_>, model: &mut Model, out: &mut Vec<u8>) {
    let silent = match admin {
        Admin::FlushAll { at, noreply } => {
            if at.is_none() {
                model.items.clear();
            }
            noreply
        }
        Admin::Verbosity { noreply, .. } | Admin::CacheMemlimit { noreply, .. } => noreply,
        _ => false,
    };
    let bytes = match admin {
        Admin::Stats(StatsRequest::Reset) => reply::RESET,
        Admin::Stats(StatsRequest::Unknown(_)) => reply::ERROR,
        Admin::Stats(StatsRequest::DetailOn | StatsRequest::DetailOff) => reply::OK,
        Admin::Stats(_) | Admin::Dump { .. } => reply::END,
        Admin::Authenticate {
            payload: b"ann secret",
        } => {
            codec.set_authenticated();
            reply::STORED
        }
        Admin::Authenticate { .. } => reply::AUTH_FAILURE,
        _ => reply::OK,
    };
    if !silent {
        out.extend_from_slice(bytes);
    }
}

/// The whole transcript of a connection that sends `input` at once.
pub(crate) fn talk(input: &[u8]) -> String {
    talk_with(Limits::default(), input)
}

/// Like [`talk`], with other limits.
pub(crate) fn talk_with(limits: Limits, input: &[u8]) -> String {
    let mut session = Session::new(false, limits);
    session.feed(input);
    transcript(&session)
}

/// The replies, and whether the connection was closed.
pub(crate) fn transcript(session: &Session) -> String {
    let mut text = String::from_utf8_lossy(&session.out).into_owned();
    if session.closed {
        text.push_str("<closed>");
    }
    text
}
