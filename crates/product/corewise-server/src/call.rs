//! Executes the calls of all protocols: commands that are not operations on one item.

use crate::admin::{self, After};
use crate::budget::Budget;
use crate::codec::{Answered, Call, Codec, Parse};
use crate::commands;
use crate::config::BindingProtocol;
use crate::conn::Conn;
use crate::metrics::Counters;
use crate::shared::Shared;
use corewise_atomic::sync::atomic::Ordering;
use corewise_engine::Engine;
use corewise_engine::isolation::Member;
use corewise_wire::memcached::Admin;
use corewise_wire::{Tally, binary};
use std::sync::Arc;

/// What a call may use: the state of its loop, in which no operation is pending.
pub(crate) struct CallContext<'c, E: Engine> {
    pub(crate) shared: &'c Shared,
    pub(crate) engine: &'c Arc<E>,
    pub(crate) session: &'c mut E::Session,
    pub(crate) member: &'c mut Member,
    pub(crate) counters: &'c mut Counters,
    /// The index of the loop.
    pub(crate) loop_index: usize,
    pub(crate) parse: Parse<'c>,
    pub(crate) budget: &'c Budget,
    /// The connection that makes the call.
    pub(crate) conn: &'c mut Conn,
    pub(crate) out: &'c mut Vec<u8>,
    /// The call directly follows a flush of the same connection.
    pub(crate) follows_flush: bool,
}

impl<E: Engine> CallContext<'_, E> {
    /// Executes a call and prints its reply. It may change the state of the `codec` that made it.
    pub(crate) fn answer(&mut self, call: Call<'_>, codec: &mut Codec) -> Answered {
        match (call, codec) {
            (Call::Memcached(Admin::Binary(_)), codec) if self.may_be_binary(codec) => {
                self.conn.codec = binary::Codec::default().into();
                Answered::ByNewCodec
            }
            (Call::Memcached(admin), codec) => self.administer(admin, codec),
            (Call::Binary(call), codec) => {
                let replies = std::mem::take(self.out);
                let answered = self.administer(call.admin, codec);
                let text = std::mem::replace(self.out, replies);
                call.encode(&text, self.out);
                answered
            }
            (Call::Resp(request), Codec::Resp(codec)) => commands::Context {
                shared: self.shared,
                engine: self.engine,
                session: self.session,
                member: self.member,
                transaction: None,
                counters: self.counters,
                loop_index: self.loop_index,
                parse: self.parse,
                budget: self.budget,
                conn: self.conn,
                codec,
                out: self.out,
                tally: Tally::None,
                is_silent: false,
                follows_flush: self.follows_flush,
                replies_are_cut: false,
                script_time: self.shared.config.script_time,
                answered: Answered::Fully,
            }
            .answer(request),
            (Call::Resp(_), _) => {
                debug_assert!(false, "only the codec of RESP makes this call");
                Answered::Fully
            }
        }
    }

    /// Whether a connection may go on in memcached's binary protocol, which has no authentication
    /// here.
    fn may_be_binary(&self, codec: &Codec) -> bool {
        let is_admitted = matches!(codec, Codec::Memcached(codec) if codec.is_authenticated());
        is_admitted && self.shared.config.binding == BindingProtocol::Auto
    }

    fn administer(&mut self, admin: Admin<'_>, codec: &mut Codec) -> Answered {
        let mut context = admin::Context {
            shared: self.shared,
            engine: &**self.engine,
            counters: self.counters,
            now: self.parse.now,
            fd: self.conn.info.fd,
            out: self.out,
            follows_flush: self.follows_flush,
        };
        match context.answer(admin) {
            After::GoOn => {}
            After::Flushed => return Answered::ByFlush,
            After::Admitted => {
                if let Codec::Memcached(codec) = codec {
                    codec.set_authenticated();
                }
            }
            After::Dumps(dump) => {
                // Relaxed: a gauge.
                self.shared.dumps.fetch_add(1, Ordering::Relaxed);
                self.counters.dumps += 1;
                self.conn.dump = Some(Box::new(dump));
            }
            After::Close => self.conn.closing = true,
        }
        Answered::Fully
    }
}
