//! Filters: classic BPF programs (McCanne and Jacobson, 1993), as libpcap's compiler makes them for
//! Ethernet, checked and then interpreted. A jump only goes forward, so a program ends after at
//! most as many steps as it has instructions.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Maximum number of instructions (`BPF_MAXINSNS`).
pub const INSTRUCTIONS_MAX: usize = 4096;
/// Number of words of memory (`BPF_MEMWORDS`).
const WORDS: u32 = 16;

/// An instruction: code, jumps if true and if false, operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instruction(pub u16, pub u8, pub u8, pub u32);

/// A program is not a filter.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum FilterError {
    /// Too few or too many instructions.
    #[error("filter of {0} instructions: give 1 to {INSTRUCTIONS_MAX}")]
    Length(usize),
    /// An instruction that does not exist, or may not be there.
    #[error("filter: instruction {at}, {instruction:?}: {what}")]
    Instruction {
        /// Number of the instruction, from 0.
        at: usize,
        /// The instruction.
        instruction: Instruction,
        /// Description of the error.
        what: &'static str,
    },
    /// The text is not what `tcpdump -ddd` prints.
    #[error("filter {0:?}: expected a line with the number of instructions, then one for each")]
    Text(String),
}

/// Effect of an instruction.
#[derive(Clone, Copy)]
enum Step {
    /// To the accumulator: a constant, the frame's length, a word of memory, or 4, 2 or 1 bytes of
    /// the frame at a constant offset, or at one from the index register on.
    Load(Source),
    /// To the index register.
    LoadIndex(Source),
    Store(usize),
    StoreIndex(usize),
    /// On the accumulator, with a constant or the index register.
    Compute(Operator, Option<u32>),
    Negate,
    Jump(u32),
    /// By comparing the accumulator with a constant or the index register.
    Branch(Test, Option<u32>, u8, u8),
    /// The number of bytes to keep: a constant, or the accumulator.
    Return(Option<u32>),
    ToIndex,
    FromIndex,
}

#[derive(Clone, Copy)]
enum Source {
    Constant(u32),
    Length,
    Memory(usize),
    Frame {
        offset: u32,
        from_index: bool,
        bytes: u8,
    },
    /// Four times the low half of the byte at the offset: the length of an IP header.
    HeaderLength(u32),
}

#[derive(Clone, Copy)]
enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Or,
    And,
    Xor,
    Left,
    Right,
}

#[derive(Clone, Copy)]
enum Test {
    Equal,
    Greater,
    GreaterOrEqual,
    Bits,
}

/// A checked program.
#[derive(Clone)]
pub struct Filter {
    steps: Box<[Step]>,
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Filter of {} instructions", self.steps.len())
    }
}

impl Filter {
    /// Checks a program.
    pub fn new(program: &[Instruction]) -> Result<Self, FilterError> {
        if !(1..=INSTRUCTIONS_MAX).contains(&program.len()) {
            return Err(FilterError::Length(program.len()));
        }
        let step = |(at, instruction): (usize, &Instruction)| {
            let wrong = |what| FilterError::Instruction { at, instruction: *instruction, what };
            let step = decode(*instruction).map_err(wrong)?;
            let behind = (program.len() - at - 1) as u32;
            let is_inside = match step {
                Step::Jump(by) => by < behind,
                Step::Branch(_, _, yes, no) => u32::from(yes.max(no)) < behind,
                Step::Return(_) => true,
                _ => behind > 0,
            };
            if !is_inside {
                return Err(wrong("leads back, as protochain does, or beyond the end"));
            }
            Ok(step)
        };
        let steps = program.iter().enumerate().map(step).collect::<Result<_, _>>()?;
        Ok(Self { steps })
    }

    /// Returns true if the filter keeps a frame of `len` bytes that begins with `bytes`. It does
    /// not if it reads beyond `bytes`.
    pub fn keeps(&self, bytes: &[u8], len: usize) -> bool {
        self.run(bytes, len as u32).unwrap_or(0) != 0
    }

    /// Returns the number of bytes to keep; `None` if the program reads beyond `bytes`, or divides
    /// by zero.
    fn run(&self, bytes: &[u8], len: u32) -> Option<u32> {
        let (mut a, mut x) = (0u32, 0u32);
        let mut memory = [0u32; WORDS as usize];
        let mut at = 0;
        // Each round advances by at least one instruction.
        for _ in 0..self.steps.len() {
            let step = *self.steps.get(at)?;
            at += 1;
            match step {
                Step::Load(source) => a = load(source, bytes, len, x, &memory)?,
                Step::LoadIndex(source) => x = load(source, bytes, len, x, &memory)?,
                Step::Store(word) => memory[word] = a,
                Step::StoreIndex(word) => memory[word] = x,
                Step::Compute(operator, operand) => {
                    a = compute(operator, a, operand.unwrap_or(x))?;
                }
                Step::Negate => a = a.wrapping_neg(),
                Step::Jump(by) => at += by as usize,
                Step::Branch(test, operand, yes, no) => {
                    let operand = operand.unwrap_or(x);
                    let holds = match test {
                        Test::Equal => a == operand,
                        Test::Greater => a > operand,
                        Test::GreaterOrEqual => a >= operand,
                        Test::Bits => a & operand != 0,
                    };
                    at += usize::from(if holds { yes } else { no });
                }
                Step::Return(bytes) => return Some(bytes.unwrap_or(a)),
                Step::ToIndex => x = a,
                Step::FromIndex => a = x,
            }
        }
        None
    }
}

#[inline]
fn load(source: Source, bytes: &[u8], len: u32, x: u32, memory: &[u32]) -> Option<u32> {
    Some(match source {
        Source::Constant(constant) => constant,
        Source::Length => len,
        Source::Memory(word) => memory[word],
        Source::Frame { offset, from_index, bytes: count } => {
            let offset = if from_index { offset.checked_add(x)? } else { offset };
            let there = bytes.get(offset as usize..)?;
            match count {
                1 => u32::from(*there.first()?),
                2 => u16::from_be_bytes(*there.first_chunk()?).into(),
                _ => u32::from_be_bytes(*there.first_chunk()?),
            }
        }
        Source::HeaderLength(offset) => u32::from(bytes.get(offset as usize)? & 0xf) * 4,
    })
}

#[inline]
fn compute(operator: Operator, a: u32, operand: u32) -> Option<u32> {
    Some(match operator {
        Operator::Add => a.wrapping_add(operand),
        Operator::Subtract => a.wrapping_sub(operand),
        Operator::Multiply => a.wrapping_mul(operand),
        Operator::Divide => a.checked_div(operand)?,
        Operator::Remainder => a.checked_rem(operand)?,
        Operator::Or => a | operand,
        Operator::And => a & operand,
        Operator::Xor => a ^ operand,
        Operator::Left => a.checked_shl(operand).unwrap_or(0),
        Operator::Right => a.checked_shr(operand).unwrap_or(0),
    })
}

/// Parts of a code (bpf(4)).
mod code {
    pub(super) const CLASS: u16 = 0x07;
    pub(super) const LD: u16 = 0;
    pub(super) const LDX: u16 = 1;
    pub(super) const ST: u16 = 2;
    pub(super) const STX: u16 = 3;
    pub(super) const ALU: u16 = 4;
    pub(super) const JMP: u16 = 5;
    pub(super) const RET: u16 = 6;
    /// The operand is the index register, not a constant.
    pub(super) const X: u16 = 0x08;
    pub(super) const TAX: u16 = 0x07;
    pub(super) const TXA: u16 = 0x87;
}

fn decode(Instruction(code, yes, no, k): Instruction) -> Result<Step, &'static str> {
    const UNKNOWN: &str = "unknown code";
    let word = || match k {
        0..WORDS => Ok(k as usize),
        _ => Err("memory has words 0 to 15"),
    };
    let frame = |from_index, bytes| Source::Frame { offset: k, from_index, bytes };
    let operand = (code & code::X == 0).then_some(k);
    Ok(match code & code::CLASS {
        code::LD => Step::Load(match code {
            0x00 => Source::Constant(k),
            0x20 => frame(false, 4),
            0x28 => frame(false, 2),
            0x30 => frame(false, 1),
            0x40 => frame(true, 4),
            0x48 => frame(true, 2),
            0x50 => frame(true, 1),
            0x60 => Source::Memory(word()?),
            0x80 => Source::Length,
            _ => return Err(UNKNOWN),
        }),
        code::LDX => Step::LoadIndex(match code {
            0x01 => Source::Constant(k),
            0x61 => Source::Memory(word()?),
            0x81 => Source::Length,
            0xb1 => Source::HeaderLength(k),
            _ => return Err(UNKNOWN),
        }),
        code::ST if code == code::ST => Step::Store(word()?),
        code::STX if code == code::STX => Step::StoreIndex(word()?),
        code::ALU if code == 0x84 => Step::Negate,
        code::ALU => {
            let operator = match code & !code::X {
                0x04 => Operator::Add,
                0x14 => Operator::Subtract,
                0x24 => Operator::Multiply,
                0x34 => Operator::Divide,
                0x44 => Operator::Or,
                0x54 => Operator::And,
                0x64 => Operator::Left,
                0x74 => Operator::Right,
                0x94 => Operator::Remainder,
                0xa4 => Operator::Xor,
                _ => return Err(UNKNOWN),
            };
            if matches!(operator, Operator::Divide | Operator::Remainder) && operand == Some(0) {
                return Err("divides by zero");
            }
            Step::Compute(operator, operand)
        }
        code::JMP if code == code::JMP => Step::Jump(k),
        code::JMP => {
            let test = match code & !code::X {
                0x15 => Test::Equal,
                0x25 => Test::Greater,
                0x35 => Test::GreaterOrEqual,
                0x45 => Test::Bits,
                _ => return Err(UNKNOWN),
            };
            Step::Branch(test, operand, yes, no)
        }
        code::RET => match code {
            0x06 => Step::Return(Some(k)),
            0x16 => Step::Return(None),
            _ => return Err(UNKNOWN),
        },
        _ => match code {
            code::TAX => Step::ToIndex,
            code::TXA => Step::FromIndex,
            _ => return Err(UNKNOWN),
        },
    })
}

/// A program as text: what `tcpdump -ddd` prints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Program(pub Vec<Instruction>);

impl FromStr for Program {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let wrong = || FilterError::Text(text.chars().take(80).collect());
        let mut lines = text.lines();
        let count: usize =
            lines.next().and_then(|line| line.trim().parse().ok()).ok_or_else(wrong)?;
        let instruction = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let mut word = || words.next()?.parse::<u32>().ok();
            let (code, yes, no, k) = (word()?, word()?, word()?, word()?);
            let is_end = words.next().is_none();
            let [yes, no] = [yes, no].map(u8::try_from);
            is_end.then_some(Instruction(code.try_into().ok()?, yes.ok()?, no.ok()?, k))
        };
        let program: Option<Vec<_>> = lines.map(instruction).collect();
        let program = program.filter(|program| program.len() == count).ok_or_else(wrong)?;
        Ok(Self(program))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `tcpdump -ddd -y EN10MB 'udp port 2152'`, without IPv6.
    const GTPU: &str = "13
40 0 0 12
21 0 10 2048
48 0 0 23
21 0 8 17
40 0 0 20
69 6 0 8191
177 0 0 14
72 0 0 14
21 2 0 2152
72 0 0 16
21 0 1 2152
6 0 0 262144
6 0 0 0";

    fn filter(text: &str) -> Filter {
        Filter::new(&text.parse::<Program>().unwrap().0).unwrap()
    }

    fn udp(port: u16) -> Vec<u8> {
        let mut frame = vec![0; 60];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x45;
        frame[23] = 17;
        frame[36..38].copy_from_slice(&port.to_be_bytes());
        frame
    }

    #[test]
    fn filter_of_a_port_keeps_its_frames() {
        let filter = filter(GTPU);
        assert!(filter.keeps(&udp(2152), 60));
        assert!(!filter.keeps(&udp(2153), 60));
        let mut fragment = udp(2152);
        fragment[21] = 1;
        assert!(!filter.keeps(&fragment, 60));
        for len in 0..38 {
            assert!(!filter.keeps(&udp(2152)[..len], 60), "{len}");
        }
    }

    /// Returns what a program of these instructions returns for the frame 00 01 02 .. 1f.
    fn result(program: &[(u16, u32)]) -> Option<u32> {
        let program: Vec<_> =
            program.iter().map(|(code, k)| Instruction(*code, 0, 0, *k)).collect();
        let bytes: Vec<u8> = (0..32).collect();
        Filter::new(&program).unwrap().run(&bytes, 100)
    }

    #[test]
    fn every_instruction_computes_what_its_name_says() {
        const RET_A: (u16, u32) = (0x16, 0);
        for (program, expected) in [
            (&[(0x00, 7)][..], Some(7)),
            (&[(0x20, 4)], Some(0x0405_0607)),
            (&[(0x28, 4)], Some(0x0405)),
            (&[(0x30, 4)], Some(4)),
            (&[(0x01, 3), (0x40, 1)], Some(0x0405_0607)),
            (&[(0x01, 3), (0x48, 1)], Some(0x0405)),
            (&[(0x01, 3), (0x50, 1)], Some(4)),
            (&[(0x80, 0)], Some(100)),
            (&[(0x81, 0), (0x87, 0)], Some(100)),
            (&[(0xb1, 25), (0x87, 0)], Some(36)),
            (&[(0x00, 9), (0x02, 15), (0x00, 1), (0x60, 15)], Some(9)),
            (&[(0x01, 9), (0x03, 0), (0x61, 0), (0x87, 0)], Some(9)),
            (&[(0x00, 9), (0x07, 0), (0x00, 1), (0x87, 0)], Some(9)),
            (&[(0x00, 9), (0x04, 5)], Some(14)),
            (&[(0x00, 1), (0x14, 2)], Some(u32::MAX)),
            (&[(0x00, 9), (0x24, 5)], Some(45)),
            (&[(0x00, 9), (0x34, 2)], Some(4)),
            (&[(0x00, 9), (0x94, 2)], Some(1)),
            (&[(0x00, 9), (0x44, 6)], Some(15)),
            (&[(0x00, 9), (0x54, 3)], Some(1)),
            (&[(0x00, 9), (0xa4, 3)], Some(10)),
            (&[(0x00, 9), (0x64, 2)], Some(36)),
            (&[(0x00, 9), (0x64, 40)], Some(0)),
            (&[(0x00, 9), (0x74, 1)], Some(4)),
            (&[(0x00, 1), (0x84, 0)], Some(u32::MAX)),
            (&[(0x00, 9), (0x01, 2), (0x3c, 0)], Some(4)),
            (&[(0x00, 9), (0x01, 0), (0x3c, 0)], None),
            (&[(0x00, 9), (0x01, 0), (0x9c, 0)], None),
            (&[(0x20, 29)], None),
            (&[(0x30, 32)], None),
            (&[(0x01, u32::MAX), (0x50, 1)], None),
            (&[(0xb1, 32)], None),
        ] {
            assert_eq!(result(&[program, &[RET_A]].concat()), expected, "{program:x?}");
        }
        for (code, k, holds) in
            [(0x15, 9, true), (0x25, 9, false), (0x35, 9, true), (0x45, 6, false)]
        {
            let program = [
                Instruction(0x00, 0, 0, 9),
                Instruction(code, 1, 0, k),
                Instruction(0x06, 0, 0, 0),
                Instruction(0x06, 0, 0, 1),
            ];
            assert_eq!(Filter::new(&program).unwrap().keeps(&[], 0), holds, "{code:x}");
        }
    }

    #[test]
    fn invalid_programs_are_refused_with_the_instruction() {
        let ret = Instruction(0x06, 0, 0, 0);
        for (program, part) in [
            (vec![], "0 instructions: give 1 to 4096"),
            (vec![ret; 4097], "4097 instructions"),
            (
                vec![Instruction(0x00, 0, 0, 1)],
                "instruction 0, Instruction(0, 0, 0, 1): leads back",
            ),
            (vec![Instruction(0x05, 0, 0, 1), ret], "leads back"),
            (vec![Instruction(0x05, 0, 0, u32::MAX), ret], "leads back"),
            (vec![Instruction(0x15, 0, 1, 0), ret], "leads back"),
            (vec![Instruction(0x60, 0, 0, 16), ret], "words 0 to 15"),
            (vec![Instruction(0x02, 0, 0, 16), ret], "words 0 to 15"),
            (vec![Instruction(0x34, 0, 0, 0), ret], "divides by zero"),
            (vec![Instruction(0x94, 0, 0, 0), ret], "divides by zero"),
            (vec![Instruction(0x1234, 0, 0, 0), ret], "unknown code"),
            (vec![Instruction(0x65, 0, 0, 0), ret], "unknown code"),
        ] {
            let message = Filter::new(&program).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
        for text in ["", "x", "2\n6 0 0 0", "1\n6 0 0", "1\n6 0 256 0", "1\n6 0 0 0 0"] {
            assert!(text.parse::<Program>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_program_is_refused_or_ends(
            program in prop::collection::vec((any::<u16>(), 0..4u8, 0..4u8, any::<u32>()), 1..40),
            bytes: Vec<u8>,
        ) {
            const CODES: [u16; 20] = [0, 0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x60, 0x80, 1, 0xb1, 2, 3, 4, 0x3c, 5, 0x15, 0x45, 7, 0x87];
            let known = |(code, yes, no, k): &(u16, u8, u8, u32)| {
                Instruction(CODES[usize::from(*code) % CODES.len()], *yes, *no, k % 64)
            };
            let mut program: Vec<_> = program.iter().map(known).collect();
            program.extend([Instruction(0x16, 0, 0, 0); 4]);
            if let Ok(filter) = Filter::new(&program) {
                filter.keeps(&bytes, bytes.len());
            }
        }
    }
}
