//! Tests of the real programs, which know nothing of how they are made: an edit of those recompiles none of these.

mod advice;
mod chaos;
mod claude;
mod coordinators;
mod crowds;
mod doctor;
mod failover;
mod full_disk;
mod hosts;
mod journal;
mod last_hop;
mod links;
mod neighbours;
mod opencode;
mod outages;
mod pasted;
mod plugin;
mod printed;
mod shipping;
mod terminals;
mod tls;
mod topologies;
