//! Proofs about a host's key when the host joins again. Each counts with one code, and for the coordinator with one
//! certificate: one that gets a proof, or that chose the code, cannot use it at another coordinator. None reveals the key.

use crate::join::Fingerprint;

/// The subject of a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProofOf {
    /// That the holder of the code has a key too.
    Host,
    /// That the coordinator has the hash of that key, so that it is of the same fleet.
    Fleet,
}

impl ProofOf {
    /// Returns the proof for a key. `coordinator` is its own certificate; `None` without one, as behind an authority or
    /// without TLS.
    pub fn with_key(self, key: &str, code: &str, coordinator: Option<Fingerprint>) -> String {
        self.with(&blake3::hash(key.as_bytes()), code, coordinator)
    }

    /// Returns the proof for a key's stored hash of 64 hexadecimal digits; `None` if `hash` is not such a hash.
    pub fn with_hash(
        self,
        hash: &str,
        code: &str,
        coordinator: Option<Fingerprint>,
    ) -> Option<String> {
        let hash = blake3::Hash::from_hex(hash).ok()?;
        Some(self.with(&hash, code, coordinator))
    }

    fn with(self, hash: &blake3::Hash, code: &str, coordinator: Option<Fingerprint>) -> String {
        let purpose = match self {
            Self::Host => "host",
            Self::Fleet => "fleet",
        };
        let certificate = coordinator.map(|own| own.to_string()).unwrap_or_default();
        let text = format!("{purpose} {} {certificate}", code.trim());
        blake3::keyed_hash(hash.as_bytes(), text.as_bytes())
            .to_hex()
            .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_needs_the_key_and_is_good_for_one_code() {
        let kept = blake3::hash(b"c3po_0a1b2c3d_x").to_hex().to_string();
        let (one, other) = (Fingerprint::of([1; 32]), Fingerprint::of([2; 32]));
        let key = "c3po_0a1b2c3d_x";
        let said = ProofOf::Host.with_key(key, "code", Some(one));
        let with_hash = |of: ProofOf, code, at| of.with_hash(&kept, code, at);
        assert_eq!(
            with_hash(ProofOf::Host, "code", Some(one)),
            Some(said.clone())
        );
        for (of, code, at) in [
            (ProofOf::Host, "another", Some(one)),
            (ProofOf::Host, "code", Some(other)),
            (ProofOf::Host, "code", None),
            (ProofOf::Fleet, "code", Some(one)),
        ] {
            assert_ne!(with_hash(of, code, at), Some(said.clone()), "{of:?} {code}");
        }
        assert_ne!(
            ProofOf::Host.with_key("c3po_0a1b2c3d_y", "code", Some(one)),
            said
        );
        assert_eq!(ProofOf::Host.with_hash("no hash", "code", None), None);
    }
}
