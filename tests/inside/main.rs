//! Tests with a coordinator in their own process: they inspect its internals and change its settings.

mod access;
mod audit;
mod clocks;
mod control;
mod description;
mod displayed;
mod escalated;
mod events;
mod first_reference;
mod policy;
mod properties;
mod pushes;
mod questions;
mod terminals;
mod tools;
mod triage;
mod triage_hosts;
mod v1;
