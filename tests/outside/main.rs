//! Every end-to-end test, in one program: linking it is most of what building it takes.

mod access;
mod api_reference;
mod audit;
mod chaos;
mod claude;
mod control;
mod coordinators;
mod crowds;
mod description;
mod doctor;
mod documents;
mod first_reference;
mod full_disk;
mod journal;
mod last_hop;
mod links;
mod opencode;
mod outages;
mod plugin;
mod policy;
mod properties;
mod store;
mod tidy;
mod tls;
mod tools;
mod topologies;
