/* contract.c - the list.  (contract.h says who uses it.) */
#include "core/contract.h"
#include <stddef.h>

const struct contract_close contract_closes[CLOSE_REASONS + 1] = {
    [CLOSE_ANSWERED] = {CLOSE_CODE_NORMAL, false, NULL}, /* the gateway's own close */
    [CLOSE_NOT_WEBSOCKET] = {CLOSE_CODE_PROTOCOL, false, "protocol violation"},
    [CLOSE_NOT_UTF8] = {CLOSE_CODE_NOT_UTF8, false, "protocol violation"},
    [CLOSE_TOO_SLOW] = {CLOSE_CODE_POLICY, false, "too slow"}, /* the gateway does not read */
    [CLOSE_NO_HELLO] = {CLOSE_CODE_POLICY, false, "no hello"},
    [CLOSE_MALFORMED] = {CLOSE_CODE_POLICY, false, "malformed frames"},
    [CLOSE_SLEEPS_TOO_OFTEN] = {CLOSE_CODE_POLICY, false, "falls asleep too often"},
    [CLOSE_TOO_LARGE] = {CLOSE_CODE_TOO_LARGE, false, "protocol violation"},
    [CLOSE_RESTARTING] = {CLOSE_CODE_RESTART, false, "restarting"},
    [CLOSE_REPLACED] = {CLOSE_CODE_RESTART, false, "replaced by a newer socket"},
    [CLOSE_FELL_ASLEEP] = {CLOSE_CODE_RESTART, false, "the instance went to sleep"},
    [CLOSE_NO_ACKS] = {CLOSE_CODE_RESTART, false, "no acknowledgements"},
    [CLOSE_NO_PONGS] = {CLOSE_CODE_RESTART, false, "no answer to pings"},
    [CLOSE_TRY_LATER] = {CLOSE_CODE_BUSY, false, "try again later"}, /* also during a shutdown */
    [CLOSE_UNAUTHORIZED] = {CLOSE_CODE_UNAUTHORIZED, true, "unauthorized"},
    [CLOSE_REVOKED] = {CLOSE_CODE_UNAUTHORIZED, true, "revoked"},
};
