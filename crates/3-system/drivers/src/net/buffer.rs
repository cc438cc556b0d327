use std::io;

/// A source of bytes.
pub(crate) trait Source {
    /// Reads available bytes into `into` and returns their number; `None` if there are none and `wait`
    /// is false, zero if the peer has closed the connection.
    fn receive(&mut self, into: &mut [u8], wait: bool) -> io::Result<Option<usize>>;
}

/// Enough for replies of hundreds of rows, and smaller than a second-level cache.
const INITIAL_SIZE: usize = 128 << 10;

/// Maximum size of a message from a server. No row of a benchmark comes near it; a server could send one
/// that fills the memory.
pub(crate) const MAX_MESSAGE: usize = 64 << 20;

/// Received bytes that are not consumed yet.
///
/// When all bytes are consumed, the next ones are read to its start, so that small replies use the same
/// cache lines. It grows for larger packets, up to [`MAX_MESSAGE`], and never shrinks.
pub(crate) struct ReadBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl ReadBuffer {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; INITIAL_SIZE], start: 0, end: 0 }
    }

    #[inline]
    pub(crate) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Consumes the first `count` unread bytes.
    #[inline]
    pub(crate) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start);
        self.start += count;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Waits for at least one more byte and reads what is available.
    #[inline]
    pub(crate) fn fill(&mut self, source: &mut impl Source) -> io::Result<()> {
        self.read_from(source, true).map(|_| ())
    }

    /// Reads what is available, without waiting; false if there is nothing.
    #[inline]
    pub(crate) fn try_fill(&mut self, source: &mut impl Source) -> io::Result<bool> {
        self.read_from(source, false)
    }

    #[inline]
    fn read_from(&mut self, source: &mut impl Source, wait: bool) -> io::Result<bool> {
        self.make_space()?;
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

    /// Moves the unread bytes, usually a part of a packet, to the front. Grows if they fill the buffer.
    #[inline]
    fn make_space(&mut self) -> io::Result<()> {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.bytes.len() {
            self.grow()?;
        }
        Ok(())
    }

    #[cold]
    fn grow(&mut self) -> io::Result<()> {
        if self.bytes.len() >= MAX_MESSAGE {
            let message = format!("the server sent a message of over {} MiB", MAX_MESSAGE >> 20);
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        self.bytes.resize((self.bytes.len() * 2).min(MAX_MESSAGE), 0);
        Ok(())
    }
}

/// A source for tests that returns one prepared chunk per call.
#[cfg(test)]
pub(crate) struct ChunkedSource(pub(crate) std::collections::VecDeque<Vec<u8>>);

#[cfg(test)]
impl ChunkedSource {
    /// Splits `bytes` into chunks of these lengths, used cyclically.
    pub(crate) fn split(mut bytes: &[u8], lengths: &[usize]) -> Self {
        let mut chunks = std::collections::VecDeque::new();
        for length in lengths.iter().cycle() {
            if bytes.is_empty() {
                break;
            }
            let (chunk, rest) = bytes.split_at((*length).clamp(1, bytes.len()));
            chunks.push_back(chunk.to_vec());
            bytes = rest;
        }
        Self(chunks)
    }
}

#[cfg(test)]
impl Source for ChunkedSource {
    fn receive(&mut self, into: &mut [u8], wait: bool) -> io::Result<Option<usize>> {
        let Some(mut chunk) = self.0.pop_front() else {
            return Ok(if wait { Some(0) } else { None });
        };
        let count = chunk.len().min(into.len());
        into[..count].copy_from_slice(&chunk[..count]);
        if count < chunk.len() {
            self.0.push_front(chunk.split_off(count));
        }
        Ok(Some(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_bytes_survive_moving_and_growing() {
        let bytes: Vec<u8> = (0..5 * INITIAL_SIZE).map(|n| (n % 251) as u8).collect();
        let mut source = ChunkedSource::split(&bytes, &[100_000, 1, 70_000]);
        let mut buffer = ReadBuffer::new();
        let mut seen = Vec::new();
        while seen.len() < bytes.len() {
            buffer.fill(&mut source).unwrap();
            if buffer.unread().len() > 2 * INITIAL_SIZE
                || seen.len() + buffer.unread().len() == bytes.len()
            {
                let count = buffer.unread().len().min(INITIAL_SIZE + 7);
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
    fn message_without_end_is_an_error() {
        /// Sends zeros.
        struct Endless;

        impl Source for Endless {
            fn receive(&mut self, into: &mut [u8], _: bool) -> io::Result<Option<usize>> {
                Ok(Some(into.len()))
            }
        }

        let mut buffer = ReadBuffer::new();
        let error = loop {
            if let Err(error) = buffer.fill(&mut Endless) {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert_eq!(buffer.bytes.capacity(), MAX_MESSAGE);
    }

    #[test]
    fn closed_connection_is_an_error_and_no_data_is_not() {
        let mut buffer = ReadBuffer::new();
        let mut nothing = ChunkedSource::split(&[], &[1]);
        assert!(!buffer.try_fill(&mut nothing).unwrap());
        let error = buffer.fill(&mut nothing).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
