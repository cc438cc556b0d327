use std::io;

/// Where bytes arrive from.
pub(crate) trait Source {
    /// Puts bytes that have arrived at the start of `into` and returns how many; `None` where none
    /// has arrived and `wait` is false. Zero means that the other side has closed.
    fn receive(&mut self, into: &mut [u8], wait: bool) -> io::Result<Option<usize>>;
}

/// Holds the replies of hundreds of rows, and is still small beside a CPU's second-level cache.
const SIZE: usize = 128 << 10;

/// Bytes that have arrived and are not consumed yet.
///
/// Whenever all is consumed it starts at its front again, so that small replies stay in the same
/// few cache lines. It grows for what does not fit, and keeps that size.
pub(crate) struct ReadBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl ReadBuffer {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; SIZE], start: 0, end: 0 }
    }

    /// What has arrived and is not consumed.
    #[inline]
    pub(crate) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Marks the first `count` unread bytes as done with.
    #[inline]
    pub(crate) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start);
        self.start += count;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Waits for at least one more byte and takes in what has arrived.
    ///
    /// # Errors
    /// The connection is lost; `UnexpectedEof` where the other side closed it.
    #[inline]
    pub(crate) fn fill(&mut self, source: &mut impl Source) -> io::Result<()> {
        self.take_in(source, true).map(|_| ())
    }

    /// Takes in what has arrived, without waiting; false where nothing has.
    ///
    /// # Errors
    /// As [`ReadBuffer::fill`].
    #[inline]
    pub(crate) fn try_fill(&mut self, source: &mut impl Source) -> io::Result<bool> {
        self.take_in(source, false)
    }

    #[inline]
    fn take_in(&mut self, source: &mut impl Source, wait: bool) -> io::Result<bool> {
        self.make_room();
        match source.receive(&mut self.bytes[self.end..], wait)? {
            Some(0) => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the server closed the connection",
            )),
            Some(count) => {
                self.end += count;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Moves what is unread, mostly a part of one packet, to the front. A packet that fills the
    /// whole buffer needs a larger one.
    #[inline]
    fn make_room(&mut self) {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.bytes.len() {
            self.bytes.resize(self.bytes.len() * 2, 0);
        }
    }
}

/// A source for tests: hands out prepared pieces, one per call.
#[cfg(test)]
pub(crate) struct Pieces(pub(crate) std::collections::VecDeque<Vec<u8>>);

#[cfg(test)]
impl Pieces {
    /// Cuts `bytes` into pieces of these lengths, taken in turn.
    pub(crate) fn cut(mut bytes: &[u8], lengths: &[usize]) -> Self {
        let mut pieces = std::collections::VecDeque::new();
        for length in lengths.iter().cycle() {
            if bytes.is_empty() {
                break;
            }
            let (piece, rest) = bytes.split_at((*length).clamp(1, bytes.len()));
            pieces.push_back(piece.to_vec());
            bytes = rest;
        }
        Self(pieces)
    }
}

#[cfg(test)]
impl Source for Pieces {
    fn receive(&mut self, into: &mut [u8], wait: bool) -> io::Result<Option<usize>> {
        let Some(mut piece) = self.0.pop_front() else {
            return Ok(if wait { Some(0) } else { None });
        };
        let count = piece.len().min(into.len());
        into[..count].copy_from_slice(&piece[..count]);
        if count < piece.len() {
            self.0.push_front(piece.split_off(count));
        }
        Ok(Some(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unread_survives_moving_and_growing() {
        let bytes: Vec<u8> = (0..5 * SIZE).map(|n| (n % 251) as u8).collect();
        let mut source = Pieces::cut(&bytes, &[100_000, 1, 70_000]);
        let mut buffer = ReadBuffer::new();
        let mut seen = Vec::new();
        while seen.len() < bytes.len() {
            buffer.fill(&mut source).unwrap();
            if buffer.unread().len() > 2 * SIZE || seen.len() + buffer.unread().len() == bytes.len()
            {
                let count = buffer.unread().len().min(SIZE + 7);
                seen.extend_from_slice(&buffer.unread()[..count]);
                buffer.consume(count);
            }
            if source.0.is_empty() {
                seen.extend_from_slice(buffer.unread());
                break;
            }
        }
        assert!(seen == bytes);
    }

    #[test]
    fn a_closed_connection_is_an_error_and_silence_is_not() {
        let mut buffer = ReadBuffer::new();
        let mut nothing = Pieces::cut(&[], &[1]);
        assert!(!buffer.try_fill(&mut nothing).unwrap());
        let error = buffer.fill(&mut nothing).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
