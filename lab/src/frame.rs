//! How a guest reports: frames on a serial line, `[kind u8][length u32 little-endian][bytes]`.
//!
//! A serial line has neither several streams nor an end. Frames give both: standard output and
//! standard error stay apart, any byte may pass, and the last frame is the exit status, so that a
//! guest that died is told from one that finished.

/// Longest payload of a frame. Senders cut longer output; a longer length is garbage.
pub const PAYLOAD_BYTES_MAX: usize = 64 * 1024;

const HEADER_BYTES: usize = 5;

/// One message from a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The guest's init runs: the boot is over.
    Started,
    /// Bytes that the command wrote to standard output.
    Stdout(Vec<u8>),
    /// Bytes that the command wrote to standard error.
    Stderr(Vec<u8>),
    /// The command ended with this status, 128 + signal where a signal ended it. The last frame.
    Status(u8),
}

/// Why bytes are no frames.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A kind that no sender writes.
    #[error("expected a frame of kind 0 to 3 from the guest, found kind {kind}")]
    Kind {
        /// The byte in the kind's place.
        kind: u8,
    },
    /// A length that no sender writes.
    #[error("expected a frame of kind {kind} to be no longer than {max} bytes, found {length}")]
    Length {
        /// The frame's kind.
        kind: u8,
        /// The longest allowed for that kind.
        max: usize,
        /// The length found.
        length: usize,
    },
}

impl Frame {
    /// The bytes to send. A payload beyond [`PAYLOAD_BYTES_MAX`] is sent as several frames.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Started => encode_one(0, &[]),
            Self::Stdout(bytes) => encode_chunks(1, bytes),
            Self::Stderr(bytes) => encode_chunks(2, bytes),
            Self::Status(status) => encode_one(3, &[*status]),
        }
    }
}

fn encode_chunks(kind: u8, bytes: &[u8]) -> Vec<u8> {
    bytes
        .chunks(PAYLOAD_BYTES_MAX)
        .flat_map(|chunk| encode_one(kind, chunk))
        .collect()
}

fn encode_one(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a chunk is at most PAYLOAD_BYTES_MAX long");
    let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
    bytes.push(kind);
    bytes.extend(length.to_le_bytes());
    bytes.extend(payload);
    bytes
}

/// Finds frames in bytes that arrive in pieces.
#[derive(Debug, Default)]
pub struct Decoder {
    pending: Vec<u8>,
}

impl Decoder {
    /// Takes bytes as they arrive.
    pub fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// The next whole frame; `None` when more bytes are needed.
    ///
    /// # Errors
    ///
    /// [`FrameError`] when the bytes cannot be frames. There is no way back into step, so the line
    /// is of no more use.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some((&[kind, a, b, c, d], rest)) = self.pending.split_first_chunk::<HEADER_BYTES>()
        else {
            // Refuse garbage at its first byte: a header may never fill up.
            return match self.pending.first() {
                Some(&kind) => payload_max(kind).map(|_| None),
                None => Ok(None),
            };
        };
        let length = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        let max = payload_max(kind)?;
        if length > max || (kind == 3 && length == 0) {
            return Err(FrameError::Length { kind, max, length });
        }
        let Some(payload) = rest.get(..length) else {
            return Ok(None);
        };
        let frame = match kind {
            0 => Frame::Started,
            1 => Frame::Stdout(payload.to_vec()),
            2 => Frame::Stderr(payload.to_vec()),
            _ => Frame::Status(payload[0]),
        };
        self.pending.drain(..HEADER_BYTES + length);
        Ok(Some(frame))
    }
}

fn payload_max(kind: u8) -> Result<usize, FrameError> {
    match kind {
        0 => Ok(0),
        1 | 2 => Ok(PAYLOAD_BYTES_MAX),
        3 => Ok(1),
        _ => Err(FrameError::Kind { kind }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(pieces: &[&[u8]]) -> Result<Vec<Frame>, FrameError> {
        let mut decoder = Decoder::default();
        let mut frames = Vec::new();
        for piece in pieces {
            decoder.push(piece);
            while let Some(frame) = decoder.next_frame()? {
                frames.push(frame);
            }
        }
        Ok(frames)
    }

    fn any_frame() -> impl Strategy<Value = Frame> {
        let bytes = || proptest::collection::vec(any::<u8>(), 1..300);
        prop_oneof![
            Just(Frame::Started),
            bytes().prop_map(Frame::Stdout),
            bytes().prop_map(Frame::Stderr),
            any::<u8>().prop_map(Frame::Status),
        ]
    }

    proptest! {
        #[test]
        fn frames_survive_any_cut(frames in proptest::collection::vec(any_frame(), 0..8), step in 1usize..50) {
            let bytes: Vec<u8> = frames.iter().flat_map(Frame::encode).collect();
            let pieces: Vec<&[u8]> = bytes.chunks(step).collect();
            prop_assert_eq!(decode(&pieces).unwrap(), frames);
        }

        #[test]
        fn any_bytes_decode_or_fail(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            if let Ok(frames) = decode(&[&bytes]) {
                prop_assert!(frames.len() <= bytes.len() / HEADER_BYTES);
            }
        }
    }

    #[test]
    fn long_output_is_cut_into_frames() {
        let output = vec![7; PAYLOAD_BYTES_MAX + 1];
        let frames = decode(&[&Frame::Stdout(output).encode()]).unwrap();
        assert_eq!(
            frames,
            [
                Frame::Stdout(vec![7; PAYLOAD_BYTES_MAX]),
                Frame::Stdout(vec![7])
            ]
        );
    }

    #[test]
    fn a_cut_frame_is_no_frame() {
        let bytes = Frame::Stderr(b"abc".to_vec()).encode();
        assert_eq!(decode(&[&bytes[..bytes.len() - 1]]), Ok(vec![]));
    }

    #[test]
    fn garbage_is_refused() {
        assert_eq!(decode(&[b"SeaBIOS"]), Err(FrameError::Kind { kind: b'S' }));
        assert_eq!(
            decode(&[&[1, 0xff, 0xff, 0xff, 0xff]])
                .unwrap_err()
                .to_string(),
            "expected a frame of kind 1 to be no longer than 65536 bytes, found 4294967295"
        );
        assert_eq!(
            decode(&[&[3, 0, 0, 0, 0]]),
            Err(FrameError::Length {
                kind: 3,
                max: 1,
                length: 0
            })
        );
    }
}
