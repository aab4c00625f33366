//! What tasks of one process hand each other: ranges of addresses that somebody is to free.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use frameyard::CpuId;
use frameyard_vm::VirtRange;

/// A range of addresses, and the CPU that its pages were allocated on.
pub(crate) type Piece = (VirtRange, CpuId);

/// Why a piece does not go in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// As many are there as may be.
    Full,
    /// The exchange is closed.
    Closed,
}

/// A queue with a bound. Once it is closed nothing goes in, and it runs empty.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    pieces: VecDeque<Piece>,
    is_closed: bool,
}

impl Exchange {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a piece in, when fewer than `bound` are there; gives it back where the exchange is closed.
    pub(crate) fn put(&self, piece: Piece, bound: usize) -> Result<(), Piece> {
        let mut queue = self.queue();
        while queue.pieces.len() >= bound && !queue.is_closed {
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        if queue.is_closed {
            return Err(piece);
        }
        queue.pieces.push_back(piece);
        drop(queue);
        self.changed.notify_all();
        Ok(())
    }

    /// Puts a piece in where there is room, without waiting.
    ///
    /// # Errors
    ///
    /// [`Refusal`], and the piece stays where it is.
    pub(crate) fn try_put(&self, piece: Piece, bound: usize) -> Result<(), Refusal> {
        let mut queue = self.queue();
        if queue.is_closed {
            return Err(Refusal::Closed);
        }
        if queue.pieces.len() >= bound {
            return Err(Refusal::Full);
        }
        queue.pieces.push_back(piece);
        Ok(())
    }

    /// Takes the oldest piece, if there is one, without waiting.
    pub(crate) fn try_take(&self) -> Option<Piece> {
        self.queue().pieces.pop_front()
    }

    /// Takes the oldest piece, when there is one; `None` when the exchange is closed and empty.
    pub(crate) fn take(&self) -> Option<Piece> {
        let mut queue = self.queue();
        loop {
            if let Some(piece) = queue.pieces.pop_front() {
                drop(queue);
                self.changed.notify_all();
                return Some(piece);
            }
            if queue.is_closed {
                return None;
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets nothing in any more.
    pub(crate) fn close(&self) {
        self.queue().is_closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frameyard_vm::VirtAddr;

    fn piece(start: u64) -> Piece {
        (VirtRange { start: VirtAddr(start), end: VirtAddr(start + 1) }, CpuId(0))
    }

    #[test]
    fn who_puts_waits_for_room_and_who_takes_for_something_to_take() {
        let exchange = Exchange::default();
        std::thread::scope(|scope| {
            let taker = scope.spawn(|| std::iter::from_fn(|| exchange.take()).count());
            for start in 0..100 {
                exchange.put(piece(start), 2).unwrap();
            }
            exchange.close();
            assert_eq!(taker.join().unwrap(), 100);
        });
    }

    #[test]
    fn a_closed_exchange_takes_nothing_and_gives_what_it_has() {
        let exchange = Exchange::default();
        exchange.put(piece(1), 1).unwrap();
        exchange.close();
        assert_eq!(exchange.put(piece(2), 9), Err(piece(2)));
        assert_eq!((exchange.take(), exchange.take()), (Some(piece(1)), None));
    }
}
