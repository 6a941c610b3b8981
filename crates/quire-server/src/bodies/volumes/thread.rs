//! Threads that the process cannot do without.
//!
//! A server whose writer is gone would answer reads and fail every create until someone notices. It is better
//! ended and started again.

use std::{io, thread};

/// Starts a thread that must end by returning. If it ends otherwise (it panics), the process is aborted.
pub(super) fn spawn(
    name: &'static str,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<thread::JoinHandle<()>> {
    spawn_guarded(name, abort_process, work)
}

fn spawn_guarded(
    name: &'static str,
    on_loss: fn(),
    work: impl FnOnce() + Send + 'static,
) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        let mut guard = LossGuard { name, on_loss, finished: false };
        work();
        guard.finished = true;
    })
}

struct LossGuard {
    name: &'static str,
    on_loss: fn(),
    finished: bool,
}

impl Drop for LossGuard {
    fn drop(&mut self) {
        if !self.finished {
            tracing::error!(thread = self.name, "a thread ended that the process cannot do without");
            (self.on_loss)();
        }
    }
}

fn abort_process() {
    std::process::abort();
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    static LOSSES: AtomicUsize = AtomicUsize::new(0);

    fn count_loss() {
        LOSSES.fetch_add(1, Ordering::SeqCst);
    }

    #[test]
    fn only_a_thread_that_does_not_return_is_a_loss() {
        spawn_guarded("returns", count_loss, || {}).unwrap().join().unwrap();
        assert_eq!(LOSSES.load(Ordering::SeqCst), 0);
        assert!(spawn_guarded("panics", count_loss, || panic!("on purpose")).unwrap().join().is_err());
        assert_eq!(LOSSES.load(Ordering::SeqCst), 1);
    }
}
