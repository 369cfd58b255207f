/* found.c - a message in Twilio's list.  (found.h has the contract.)
 *
 * The words a trial account has before every text do not matter; a text that Twilio changed
 * otherwise is not found, and stays unknown. */
#include "platform/twilio/found.h"
#include <string.h>
#include <time.h>
#include "base/json.h"

void twilio_sids_add(struct twilio_sids *s, struct str sid)
{
    if (sid.n == 0 || sid.n > TWILIO_SID_CHARS)
        return;
    char *to = s->all[s->n++ % TWILIO_SIDS];
    memcpy(to, sid.p, sid.n);
    to[sid.n] = '\0';
}

bool twilio_sids_have(const struct twilio_sids *s, struct str sid)
{
    for (unsigned i = 0; i < TWILIO_SIDS && i < s->n; i++)
        if (str_eq(sid, str_of(s->all[i])))
            return true;
    return false;
}

bool twilio_date(struct str text, int64_t *ret_s)
{
    char z[32];
    struct tm tm = {0};

    if (text.n >= sizeof z)
        return false;
    memcpy(z, text.p != NULL ? text.p : "", text.n);
    z[text.n] = '\0';
    const char *rest = strptime(z, "%a, %d %b %Y %H:%M:%S", &tm);
    if (rest == NULL || (strcmp(rest, " +0000") != 0 && strcmp(rest, " GMT") != 0))
        return false;
    *ret_s = (int64_t)timegm(&tm);
    return true;
}

static bool says(struct str body, struct str text)
{
    struct str trial = STR("Sent from your Twilio trial account - ");

    return str_eq(body, text) || (str_starts(body, trial) && str_eq(str_skip(body, trial.n), text));
}

static bool is_it(struct json m, const struct twilio_sought *q, int64_t *ret_s)
{
    struct str sid = json_str(m, "sid");

    return sid.n > 0 && str_eq(json_str(m, "to"), q->to) &&
           (q->from.p == NULL || str_eq(json_str(m, "from"), q->from)) &&
           str_starts(json_str(m, "direction"), STR("outbound")) &&
           says(json_str(m, "body"), q->body) &&
           str_eq(json_str(m, "num_media"), STR("0")) == !q->media &&
           twilio_date(json_str(m, "date_created"), ret_s) && *ret_s >= q->since_s &&
           !str_eq(sid, q->first_id) && !twilio_sids_have(q->known, sid);
}

struct str twilio_find(struct json list, const struct twilio_sought *q)
{
    struct json all = json_get(list, "messages");
    struct str found = STR_NULL;
    int64_t last_s = 0, made_s = 0;

    for (struct json_iter it = {0}; json_next(all, &it);) {
        if (!is_it(it.value, q, &made_s) || (found.n > 0 && made_s <= last_s))
            continue;
        found = json_str(it.value, "sid");
        last_s = made_s;
    }
    return found;
}
