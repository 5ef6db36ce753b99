//! What the tests stand on: real programs in folders of their own, spoken to as their users speak to them.

pub mod eventually;
pub mod redis;
