//! A real redis-server of a test's own: its own folder, a free port, ended with the test.
