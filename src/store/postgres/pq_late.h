/* pq_late.h - <libpq-fe.h>, with the library loaded when a server is told to use PostgreSQL.
 * Private to this folder.
 *
 * libpq brings Kerberos and LDAP with it, which a server with a file store should not load.  So
 * every call goes through a table, which pq_late_load() fills. */
#pragma once
#include <libpq-fe.h>
#include <stdbool.h>

#define PQ_LATE_EACH(X) \
    X(PQclear) \
    X(PQconnectPoll) \
    X(PQconnectStart) \
    X(PQconsumeInput) \
    X(PQenterPipelineMode) \
    X(PQerrorMessage) \
    X(PQexitPipelineMode) \
    X(PQfinish) \
    X(PQflush) \
    X(PQgetResult) \
    X(PQgetisnull) \
    X(PQgetlength) \
    X(PQgetvalue) \
    X(PQisBusy) \
    X(PQntuples) \
    X(PQpipelineSync) \
    X(PQresultErrorField) \
    X(PQresultStatus) \
    X(PQsendPrepare) \
    X(PQsendQuery) \
    X(PQsendQueryParams) \
    X(PQsendQueryPrepared) \
    X(PQserverVersion) \
    X(PQsetNoticeProcessor) \
    X(PQsetSingleRowMode) \
    X(PQsetnonblocking) \
    X(PQsocket) \
    X(PQstatus)

struct pq_late {
#define PQ_LATE_MEMBER(name) __typeof__(&name) name##_f;
    PQ_LATE_EACH(PQ_LATE_MEMBER)
#undef PQ_LATE_MEMBER
};
extern struct pq_late pq_late;

/* Once.  False: it is not installed, and @ret_why (256 bytes) says what to do. */
bool pq_late_load(char *ret_why);

#define PQclear pq_late.PQclear_f
#define PQconnectPoll pq_late.PQconnectPoll_f
#define PQconnectStart pq_late.PQconnectStart_f
#define PQconsumeInput pq_late.PQconsumeInput_f
#define PQenterPipelineMode pq_late.PQenterPipelineMode_f
#define PQerrorMessage pq_late.PQerrorMessage_f
#define PQexitPipelineMode pq_late.PQexitPipelineMode_f
#define PQfinish pq_late.PQfinish_f
#define PQflush pq_late.PQflush_f
#define PQgetResult pq_late.PQgetResult_f
#define PQgetisnull pq_late.PQgetisnull_f
#define PQgetlength pq_late.PQgetlength_f
#define PQgetvalue pq_late.PQgetvalue_f
#define PQisBusy pq_late.PQisBusy_f
#define PQntuples pq_late.PQntuples_f
#define PQpipelineSync pq_late.PQpipelineSync_f
#define PQresultErrorField pq_late.PQresultErrorField_f
#define PQresultStatus pq_late.PQresultStatus_f
#define PQsendPrepare pq_late.PQsendPrepare_f
#define PQsendQuery pq_late.PQsendQuery_f
#define PQsendQueryParams pq_late.PQsendQueryParams_f
#define PQsendQueryPrepared pq_late.PQsendQueryPrepared_f
#define PQserverVersion pq_late.PQserverVersion_f
#define PQsetNoticeProcessor pq_late.PQsetNoticeProcessor_f
#define PQsetSingleRowMode pq_late.PQsetSingleRowMode_f
#define PQsetnonblocking pq_late.PQsetnonblocking_f
#define PQsocket pq_late.PQsocket_f
#define PQstatus pq_late.PQstatus_f
