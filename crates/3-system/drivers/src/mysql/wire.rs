//! Basic elements of the protocol: integers, strings, packets.

/// Maximum payload of a packet; a payload of this length or more needs several packets.
pub(super) const MAX_PAYLOAD: usize = 0xff_ffff;
/// Packet header: three bytes of length, one of sequence number.
pub(super) const HEADER: usize = 4;

/// The received bytes are not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

pub(super) struct Cursor<'a> {
    left: &'a [u8],
}

impl<'a> Cursor<'a> {
    #[inline(always)]
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    #[inline(always)]
    pub(super) fn rest(&self) -> &'a [u8] {
        self.left
    }

    #[inline(always)]
    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, left) = self.left.split_at_checked(count).ok_or(Malformed)?;
        self.left = left;
        Ok(bytes)
    }

    #[inline(always)]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (bytes, left) = self.left.split_first_chunk().ok_or(Malformed)?;
        self.left = left;
        Ok(*bytes)
    }

    #[inline(always)]
    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    /// A length-encoded integer of one to nine bytes.
    #[inline(always)]
    pub(super) fn length(&mut self) -> Result<usize, Malformed> {
        match self.u8()? {
            small @ 0..=0xfa => Ok(usize::from(small)),
            0xfc => self.array().map(|two| usize::from(u16::from_le_bytes(two))),
            0xfd => self.array().map(|[a, b, c]| u32::from_le_bytes([a, b, c, 0]) as usize),
            0xfe => self.array().map(|eight| u64::from_le_bytes(eight) as usize),
            _ => Err(Malformed),
        }
    }

    /// A length-encoded string.
    #[inline(always)]
    pub(super) fn string(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.length()?;
        self.bytes(length)
    }

    /// A zero-terminated string, or the rest.
    pub(super) fn until_zero(&mut self) -> &'a [u8] {
        let end = self.left.iter().position(|byte| *byte == 0);
        let string = &self.left[..end.unwrap_or(self.left.len())];
        self.left = self.left.get(string.len() + 1..).unwrap_or_default();
        string
    }
}

/// Appends a length-encoded integer.
#[inline]
pub(super) fn put_lenenc_int(into: &mut Vec<u8>, length: usize) {
    match length {
        0..=0xfa => into.push(length as u8),
        0xfb..=0xffff => {
            into.push(0xfc);
            into.extend_from_slice(&(length as u16).to_le_bytes());
        }
        0x1_0000..=0xff_ffff => {
            into.push(0xfd);
            into.extend_from_slice(&(length as u32).to_le_bytes()[..3]);
        }
        _ => {
            into.push(0xfe);
            into.extend_from_slice(&(length as u64).to_le_bytes());
        }
    }
}

/// Appends a length-encoded string.
#[inline]
pub(super) fn put_lenenc_string(into: &mut Vec<u8>, string: &[u8]) {
    put_lenenc_int(into, string.len());
    into.extend_from_slice(string);
}

/// A payload, and the number of bytes that it takes with its headers.
pub(super) struct Framed<'a> {
    pub(super) payload: &'a [u8],
    pub(super) taken: usize,
}

/// The payload at the start of `bytes`; `None` while it is incomplete. A payload of several packets is
/// joined in `joined`.
#[inline(always)]
pub(super) fn frame<'a>(bytes: &'a [u8], joined: &'a mut Vec<u8>) -> Option<Framed<'a>> {
    let length = packet_length(bytes)?;
    if length == MAX_PAYLOAD {
        return join(bytes, joined);
    }
    let taken = HEADER + length;
    bytes.get(HEADER..taken).map(|payload| Framed { payload, taken })
}

#[inline(always)]
fn packet_length(bytes: &[u8]) -> Option<usize> {
    bytes
        .first_chunk()
        .map(|&[a, b, c, _]: &[u8; HEADER]| u32::from_le_bytes([a, b, c, 0]) as usize)
}

#[cold]
fn join<'a>(bytes: &[u8], joined: &'a mut Vec<u8>) -> Option<Framed<'a>> {
    // Check for completeness first, because this is repeated after each receive.
    let mut end = 0;
    loop {
        let length = packet_length(bytes.get(end..)?)?;
        end += HEADER + length;
        if length < MAX_PAYLOAD {
            break;
        }
    }
    let packets = bytes.get(..end)?;
    joined.clear();
    for packet in packets.chunks(HEADER + MAX_PAYLOAD) {
        joined.extend_from_slice(&packet[HEADER..]);
    }
    Some(Framed { payload: joined, taken: end })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lengths_survive_encoding(length in prop_oneof![
            0usize..0x200, 0xff00usize..0x1_0100, 0xff_ff00usize..0x100_0100, any::<usize>(),
        ]) {
            let mut bytes = Vec::new();
            put_lenenc_int(&mut bytes, length);
            let mut cursor = Cursor::new(&bytes);
            prop_assert_eq!(cursor.length(), Ok(length));
            prop_assert!(cursor.rest().is_empty());
            for cut in 0..bytes.len() {
                prop_assert_eq!(Cursor::new(&bytes[..cut]).length(), Err(Malformed));
            }
        }

        #[test]
        fn strings_come_back(string in proptest::collection::vec(any::<u8>(), 0..600)) {
            let mut bytes = Vec::new();
            put_lenenc_string(&mut bytes, &string);
            prop_assert_eq!(Cursor::new(&bytes).string(), Ok(&string[..]));
            prop_assert_eq!(Cursor::new(&bytes[..bytes.len() - 1]).string(), Err(Malformed));
        }
    }

    #[test]
    fn lengths_have_the_documented_encoding() {
        for (length, bytes) in [
            (250, vec![250]),
            (251, vec![0xfc, 251, 0]),
            (65_536, vec![0xfd, 0, 0, 1]),
            (16_777_216, vec![0xfe, 0, 0, 0, 1, 0, 0, 0, 0]),
        ] {
            let mut put = Vec::new();
            put_lenenc_int(&mut put, length);
            assert_eq!(put, bytes);
        }
        assert_eq!(Cursor::new(&[0xfb]).length(), Err(Malformed));
        assert_eq!(Cursor::new(&[0xff]).length(), Err(Malformed));
    }

    #[test]
    fn string_ends_at_zero_byte_or_end() {
        let mut cursor = Cursor::new(b"one\0two");
        assert_eq!(cursor.until_zero(), b"one");
        assert_eq!(cursor.until_zero(), b"two");
        assert_eq!(cursor.until_zero(), b"");
    }

    #[test]
    fn packet_is_returned_when_complete() {
        let bytes = [3, 0, 0, 7, b'a', b'b', b'c', 9];
        let mut joined = Vec::new();
        for cut in 0..7 {
            assert!(frame(&bytes[..cut], &mut joined).is_none());
        }
        let framed = frame(&bytes, &mut joined).unwrap();
        assert_eq!((framed.payload, framed.taken), (&b"abc"[..], 7));
    }

    #[test]
    fn payload_of_several_packets_is_joined() {
        for (length, tail) in [(MAX_PAYLOAD, 0), (MAX_PAYLOAD + 5, 5), (2 * MAX_PAYLOAD + 1, 1)] {
            let payload: Vec<u8> = (0..length).map(|n| (n % 253) as u8).collect();
            let mut bytes = Vec::new();
            for chunk in payload.chunks(MAX_PAYLOAD) {
                bytes.extend_from_slice(&(chunk.len() as u32).to_le_bytes());
                bytes.extend_from_slice(chunk);
            }
            if length.is_multiple_of(MAX_PAYLOAD) {
                bytes.extend_from_slice(&[0, 0, 0, 1]);
            }
            let whole = bytes.len();
            bytes.push(1);
            let mut joined = Vec::new();
            assert!(frame(&bytes[..whole - tail - 1], &mut joined).is_none());
            let framed = frame(&bytes, &mut joined).unwrap();
            assert_eq!(framed.taken, whole);
            assert!(framed.payload == payload);
        }
    }
}
