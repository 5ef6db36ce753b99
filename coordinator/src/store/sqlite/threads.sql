-- By time, so that a part of a thread is read without the rest.
DROP INDEX threads;
CREATE INDEX threads ON messages (thread_id, timestamp, id) WHERE thread_id <> id;
