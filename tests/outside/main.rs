//! Tests of the built programs without their source code, so that an edit of that does not recompile these tests.

mod advice;
mod chaos;
mod claude;
mod coordinators;
mod crowds;
mod doctor;
mod failover;
mod former_server;
mod full_disk;
mod hosts;
mod journal;
mod last_hop;
mod links;
mod login_page;
mod neighbours;
mod opencode;
mod outages;
mod pasted;
mod plugin;
mod printed;
mod questions;
mod shipping;
mod store_outages;
mod terminals;
mod tls;
mod topologies;
