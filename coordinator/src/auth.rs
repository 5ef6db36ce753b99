//! Who may speak to the coordinator at all. Asked before any upgrade and before any body is read.

use c3po_shared::refusal::{ErrorCode, Refusal};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use subtle::ConstantTimeEq;

use crate::config::Secret;

/// The rule of admission.
#[derive(Debug, Clone)]
pub(crate) struct Auth {
    token: Option<Secret>,
}

impl Auth {
    /// Admits whoever presents the token; everybody where there is none.
    pub(crate) fn new(token: Option<Secret>) -> Self {
        Self { token }
    }

    /// Returns an error unless the request presents the token, as `Authorization: Bearer` or `X-API-Key`.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(token) = &self.token else { return Ok(()) };
        let Some(presented) = presented(headers) else {
            return Err(Refusal::new(ErrorCode::Unauthorized, "no token was presented"));
        };
        if bool::from(presented.as_bytes().ct_eq(token.reveal().as_bytes())) {
            Ok(())
        } else {
            Err(Refusal::new(ErrorCode::Unauthorized, "the token that was presented is not the coordinator's"))
        }
    }
}

fn presented(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = bearer.and_then(|value| value.strip_prefix("Bearer "));
    bearer.or_else(|| headers.get("x-api-key").and_then(|value| value.to_str().ok())).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_admits() {
        let auth = Auth::new(Some("0123456789abcdef".parse().expect("long enough")));
        let check = |name: &'static str, value: &str, admitted: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().expect("a header"));
            assert_eq!(auth.admit(&headers).is_ok(), admitted, "{name}: {value}");
        };
        check("authorization", "Bearer 0123456789abcdef", true);
        check("x-api-key", "0123456789abcdef", true);
        check("authorization", "Bearer 0123456789abcdeF", false);
        check("authorization", "Basic 0123456789abcdef", false);
        check("x-api-key", "", false);
        assert_eq!(auth.admit(&HeaderMap::new()).map_err(|refusal| refusal.code), Err(ErrorCode::Unauthorized));
    }

    #[test]
    fn without_a_token_everybody_is_admitted() {
        assert!(Auth::new(None).admit(&HeaderMap::new()).is_ok());
    }
}
