//! A TCP stream as hyper sees it, which tells the connection's record what passes.
//!
//! Promises: it reports every byte read, every blocked write and every finished flush; it passes bytes on
//! unchanged, with one exception: an answer that hyper's parser makes on its own may be replaced by the
//! contract's (see [`parser_refusal`](super::parser_refusal)). It must never wait for anything but the socket.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::record::{Connection, Writing};

/// See the module's header.
pub(super) struct Stream {
    tcp: TcpStream,
    connection: Arc<Connection>,
    /// What is left of an answer that goes out instead of hyper's.
    instead: Option<Bytes>,
    /// Whether something was written since the last finished flush.
    wrote: bool,
    /// Whether the last write found the socket full.
    blocked: bool,
}

impl Stream {
    pub(super) fn new(tcp: TcpStream, connection: Arc<Connection>) -> Self {
        Self { tcp, connection, instead: None, wrote: false, blocked: false }
    }

    pub(super) fn into_tcp(self) -> TcpStream {
        self.tcp
    }

    /// Whether hyper's bytes must not go out because another answer does.
    fn is_replaced(&mut self) -> bool {
        if self.instead.is_none()
            && !self.wrote
            && let Writing::Instead(answer) = self.connection.writing()
        {
            self.instead = Some(answer);
        }
        self.wrote = true;
        self.instead.is_some()
    }

    fn note_read(&self, is_ok: bool, new: &[u8]) {
        if is_ok && !new.is_empty() {
            self.connection.received(new);
        } else {
            self.connection.peer_closed();
        }
    }

    fn note_write<T>(&mut self, written: &Poll<io::Result<T>>) {
        let blocked = written.is_pending();
        // A stall that goes on is not a new one, however often hyper tries.
        if blocked != self.blocked {
            self.connection.write_blocked(blocked);
            self.blocked = blocked;
        }
    }

    fn poll_write_instead(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.instead.as_mut().filter(|rest| !rest.is_empty()) {
            let written = Pin::new(&mut self.tcp).poll_write(context, rest);
            if let Poll::Ready(Ok(count)) = &written {
                if *count == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                rest.advance(*count);
            }
            self.note_write(&written);
            ready!(written)?;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let bytes_max = this.connection.read_bytes_max();
        if buffer.remaining() > bytes_max {
            // Rare: much was sent ahead. Only then is the buffer cleared first, as a part of it must be.
            let mut part = ReadBuf::new(buffer.initialize_unfilled_to(bytes_max));
            let read = ready!(Pin::new(&mut this.tcp).poll_read(context, &mut part));
            this.note_read(read.is_ok(), part.filled());
            let count = part.filled().len();
            buffer.advance(count);
            return Poll::Ready(read);
        }
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut this.tcp).poll_read(context, buffer));
        this.note_read(read.is_ok(), buffer.filled().get(before..).unwrap_or_default());
        Poll::Ready(read)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.is_replaced() {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut this.tcp).poll_write(context, bytes);
        this.note_write(&written);
        written
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.is_replaced() {
            return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
        }
        let written = Pin::new(&mut this.tcp).poll_write_vectored(context, slices);
        this.note_write(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_write_instead(context))?;
        // hyper flushes only when it has nothing more to write, and asks often when nothing was written.
        if this.wrote {
            ready!(Pin::new(&mut this.tcp).poll_flush(context))?;
            this.wrote = false;
            this.connection.flushed();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_write_instead(context))?;
        Pin::new(&mut this.tcp).poll_shutdown(context)
    }
}
