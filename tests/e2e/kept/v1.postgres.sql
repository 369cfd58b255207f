--
-- PostgreSQL database dump
--

\restrict s7rwhDMyI8vL6xiptS7dd2vxP6c8ddgZf1FRZ0jw0yYWZqke2XWRcAHfEW9xHMX

-- Dumped from database version 15.18 (Debian 15.18-0+deb12u1)
-- Dumped by pg_dump version 15.18 (Debian 15.18-0+deb12u1)

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: bellhop; Type: SCHEMA; Schema: -; Owner: -
--

CREATE SCHEMA bellhop;


--
-- Name: kv_1(integer[], bytea[], bytea[], bytea[]); Type: FUNCTION; Schema: bellhop; Owner: -
--

CREATE FUNCTION bellhop.kv_1(verbs integer[], nss bytea[], keys bytea[], vals bytea[]) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'bellhop'
    AS $$ BEGIN FOR i IN 1 .. coalesce(array_length(verbs, 1), 0) LOOP   IF verbs[i] = 0 THEN     INSERT INTO kv VALUES (nss[i], keys[i], vals[i]) ON CONFLICT (ns, key) DO UPDATE SET value = excluded.value;   ELSIF verbs[i] = 1 THEN     INSERT INTO kv VALUES (nss[i], keys[i], vals[i]) ON CONFLICT (ns, key) DO NOTHING;     IF NOT FOUND THEN RETURN i - 1; END IF;   ELSE     DELETE FROM kv WHERE ns = nss[i] AND key = keys[i];     IF verbs[i] = 3 AND NOT FOUND THEN RETURN i - 1; END IF;   END IF; END LOOP; RETURN -1; END $$;


--
-- Name: kv_try_1(integer[], bytea[], bytea[], bytea[]); Type: FUNCTION; Schema: bellhop; Owner: -
--

CREATE FUNCTION bellhop.kv_try_1(verbs integer[], nss bytea[], keys bytea[], vals bytea[]) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'bellhop'
    AS $$ DECLARE culprit int; BEGIN   BEGIN     culprit := kv_1(verbs, nss, keys, vals);     IF culprit >= 0 THEN RAISE EXCEPTION USING ERRCODE = 'BH001'; END IF;   EXCEPTION WHEN SQLSTATE 'BH001' THEN NULL; END; RETURN culprit; END $$;


--
-- Name: lease_1(integer, bytea, bytea, bigint, bigint); Type: FUNCTION; Schema: bellhop; Owner: -
--

CREATE FUNCTION bellhop.lease_1(verb integer, nm bytea, own bytea, ttl_ms bigint, mine bigint, OUT ending integer, OUT new_epoch bigint, OUT left_ms bigint, OUT holder bytea) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'bellhop'
    AS $$ DECLARE l lease; held bool; fresh timestamptz; BEGIN   ending := 0; new_epoch := mine; left_ms := 0; holder := '';   IF verb = 0 THEN INSERT INTO lease (name) VALUES (nm) ON CONFLICT DO NOTHING; END IF;   SELECT * INTO l FROM lease WHERE name = nm FOR UPDATE;   held := l.name IS NOT NULL AND l.owner <> '' AND l.until > clock_timestamp();   fresh := clock_timestamp() + ttl_ms * interval '1 millisecond';   IF verb = 0 THEN     IF held AND l.owner <> own THEN       ending := 1; holder := l.owner;       left_ms := (extract(epoch FROM l.until - clock_timestamp()) * 1000)::bigint;       RETURN;     END IF;     UPDATE lease SET owner = own, epoch = l.epoch + 1, until = fresh WHERE name = nm RETURNING epoch INTO new_epoch;   ELSIF NOT held OR mine = 0 OR l.epoch <> mine THEN     IF verb = 1 THEN ending := 2; END IF;   ELSIF verb = 1 THEN UPDATE lease SET until = fresh WHERE name = nm;   ELSE UPDATE lease SET owner = '' WHERE name = nm;   END IF; END $$;


--
-- Name: boot; Type: SEQUENCE; Schema: bellhop; Owner: -
--

CREATE SEQUENCE bellhop.boot
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: fate; Type: TABLE; Schema: bellhop; Owner: -
--

CREATE TABLE bellhop.fate (
    writer bigint NOT NULL,
    n bigint NOT NULL,
    at timestamp with time zone NOT NULL
)
WITH (fillfactor='50');


--
-- Name: kv; Type: TABLE; Schema: bellhop; Owner: -
--

CREATE TABLE bellhop.kv (
    ns bytea NOT NULL,
    key bytea NOT NULL,
    value bytea NOT NULL
);


--
-- Name: lease; Type: TABLE; Schema: bellhop; Owner: -
--

CREATE TABLE bellhop.lease (
    name bytea NOT NULL,
    owner bytea DEFAULT '\x'::bytea NOT NULL,
    epoch bigint DEFAULT 0 NOT NULL,
    until timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL
)
WITH (fillfactor='50');


--
-- Name: mail; Type: TABLE; Schema: bellhop; Owner: -
--

CREATE TABLE bellhop.mail (
    id bigint NOT NULL,
    box integer NOT NULL,
    kind integer NOT NULL,
    flags integer NOT NULL,
    at_ms bigint NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    parked bytea,
    frame bytea NOT NULL
)
WITH (fillfactor='90', autovacuum_vacuum_scale_factor='0.05');
ALTER TABLE ONLY bellhop.mail ALTER COLUMN frame SET STORAGE EXTERNAL;


--
-- Name: meta; Type: TABLE; Schema: bellhop; Owner: -
--

CREATE TABLE bellhop.meta (
    name text NOT NULL,
    value text NOT NULL
);


--
-- Name: part; Type: TABLE; Schema: bellhop; Owner: -
--

CREATE TABLE bellhop.part (
    name text NOT NULL,
    version integer NOT NULL,
    oldest integer NOT NULL
);


--
-- Name: seen; Type: TABLE; Schema: bellhop; Owner: -
--

CREATE TABLE bellhop.seen (
    at_ms bigint NOT NULL,
    keys bytea NOT NULL
);


--
-- Name: skill; Type: TABLE; Schema: bellhop; Owner: -
--

CREATE TABLE bellhop.skill (
    id bigint NOT NULL,
    store bigint NOT NULL,
    name bytea NOT NULL,
    status integer NOT NULL,
    type bytea NOT NULL,
    author bytea,
    updated_at bigint NOT NULL,
    created_at bigint NOT NULL,
    status_changed_at bigint NOT NULL,
    content_hash bytea NOT NULL,
    description bytea,
    said_type bytea,
    bag bytea,
    meta bytea NOT NULL,
    tags bytea[] NOT NULL,
    bytes_at bigint NOT NULL
)
WITH (fillfactor='70');


--
-- Name: skill_id_seq; Type: SEQUENCE; Schema: bellhop; Owner: -
--

ALTER TABLE bellhop.skill ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME bellhop.skill_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: skill_size; Type: TABLE; Schema: bellhop; Owner: -
--

CREATE TABLE bellhop.skill_size (
    tenant bytea NOT NULL,
    bytes bigint NOT NULL
)
WITH (fillfactor='50');


--
-- Name: skill_store; Type: TABLE; Schema: bellhop; Owner: -
--

CREATE TABLE bellhop.skill_store (
    id bigint NOT NULL,
    tenant bytea NOT NULL,
    ns bytea NOT NULL,
    sum bytea NOT NULL,
    n bigint NOT NULL
)
WITH (fillfactor='50');


--
-- Name: skill_store_id_seq; Type: SEQUENCE; Schema: bellhop; Owner: -
--

ALTER TABLE bellhop.skill_store ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME bellhop.skill_store_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: skill_version; Type: TABLE; Schema: bellhop; Owner: -
--

CREATE TABLE bellhop.skill_version (
    id bigint NOT NULL,
    skill bigint NOT NULL,
    version bytea NOT NULL,
    content_hash bytea NOT NULL,
    status integer NOT NULL,
    previous integer,
    changed_at bigint NOT NULL,
    changed_by bytea,
    body bigint,
    source bytea
);


--
-- Name: skill_version_id_seq; Type: SEQUENCE; Schema: bellhop; Owner: -
--

ALTER TABLE bellhop.skill_version ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME bellhop.skill_version_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Data for Name: fate; Type: TABLE DATA; Schema: bellhop; Owner: -
--

COPY bellhop.fate (writer, n, at) FROM stdin;
6987655964873949987	3	2026-11-16 18:38:40.351348+00
1048622656177498890	6	2026-11-16 18:38:40.565138+00
622403646332693888	1	2026-11-16 18:38:40.581688+00
\.


--
-- Data for Name: kv; Type: TABLE DATA; Schema: bellhop; Owner: -
--

COPY bellhop.kv (ns, key, value) FROM stdin;
\\x7365616c	\\x73616c74	\\xb66f93662474452d88de1e15847c32a6
\\x7365616c	\\x636865636b	\\x74322f5053706c50304c6a62695a536779507669626e7470776641312b3074774438766c5247674670664f324855773d
\\x6e6f6465	\\x766d	\\x7b227374617465223a2273657276696e67222c226174223a313739343835343332303334392c2273696e6365223a313739343835343332303334392c2276657273696f6e223a22302e312e30222c2261646472657373223a223132372e302e302e313a3338373033227d
\\x7765625f6b6579	\\x6c6f626279	\\x7b226b6579223a2239322b49714a784d656d6631544c6b6d413058777a6d61766b6d52555a4e326b6230573544654638386765635571794839787a61324a6f496c45303d227d
\\x67617465776179	\\x6b6565706572	\\x7b2274656e616e74223a2274222c22696e7374616e6365223a226b6565706572222c22706c6174666f726d223a22776562222c22626f74223a226c6f626279222c22626f7473223a5b7b22706c6174666f726d223a22776562222c22626f74223a226c6f626279227d5d2c2263726561746564223a313739343835343332303533372c2273656372657473223a5b7b22736563726574223a225a6951696d3067584a744d6e7a546a6d2f79326445724150336a577655663645422b6a612f396a465263494e6f49302b464b746d66796f743053786252473978414c4a784453666655447165764f5470346365504b3247706c4e2f6f7a63795148654775416b4e676d36564948787045533378354e3165657046553d227d5d7d
\\x726f757465	\\x7765621f6c6f6262791f741f6b6565706572	\\x7b226f726967696e223a226f70657261746f72222c226f70656e223a747275652c2263726561746564223a313739343835343332303533377d
\\x63686174	\\x741f6b65657065721f7765621f3230393738333432613034313330393961623561613838366562663337623234	\\x7b22626f74223a226c6f626279222c22626f78223a312c226b657973223a2265646636656465616335353934313735222c226261736973223a7b226b6579223a226c6f626279227d7d
\\x696e7374616e6365	\\x741f6b6565706572	\\x7b22626f78223a317d
\\x776562	\\x6c6f6262791f32303937383334326130343133303939616235616138383665626633376232341f30303030303230303030303030303031	\\x7b226964223a2230303030303230303030303030303031222c22726576223a2230303030303230303030303030303032222c2266726f6d223a2276697369746f72222c2274657874223a226b65707420666f7220796f75222c226174223a313739343835343332303534387d
\\x6b6579	\\x62376534363238633665306133306631	\\x7b226b696e64223a226167656e74222c2274656e616e74223a2274222c226964656e74697479223a2274222c226d616465223a313739343835343332303536312c226d6163223a2266393231363866373938633434346366323533623464346439383032663138663439383065343231656164623139643865316132643038313163623230383438227d
\.


--
-- Data for Name: lease; Type: TABLE DATA; Schema: bellhop; Owner: -
--

COPY bellhop.lease (name, owner, epoch, until) FROM stdin;
\\x7365727665	\\x	1	2026-11-16 18:38:45.47373+00
\.


--
-- Data for Name: mail; Type: TABLE DATA; Schema: bellhop; Owner: -
--

COPY bellhop.mail (id, box, kind, flags, at_ms, attempts, parked, frame) FROM stdin;
2199023255553	1	0	0	1794854320548	0	\N	\\x7b2274797065223a22696e626f756e64222c226275666665724964223a2262356267716e6b7664786b39687265783661773033713666743371222c226576656e74223a7b2274657874223a226b65707420666f7220796f75222c226d6573736167655f74797065223a2274657874222c226d6573736167655f6964223a2230303030303230303030303030303031222c227265706c795f746f5f6d6573736167655f6964223a6e756c6c2c226d656469615f75726c73223a5b5d2c22626f745f6964223a226c6f626279222c22736f75726365223a7b22706c6174666f726d223a22776562222c22636861745f6964223a223230393738333432613034313330393961623561613838366562663337623234222c22636861745f74797065223a22646d222c22636861745f6e616d65223a2256697369746f722032303937222c22757365725f6964223a223230393738333432613034313330393961623561613838366562663337623234222c22757365725f6e616d65223a2256697369746f722032303937222c227468726561645f6964223a6e756c6c2c22636861745f746f706963223a6e756c6c2c226d6573736167655f6964223a2230303030303230303030303030303031227d7d7d0a
\.


--
-- Data for Name: meta; Type: TABLE DATA; Schema: bellhop; Owner: -
--

COPY bellhop.meta (name, value) FROM stdin;
dedup_key	5e8fca9ad5164313a48f180c121f3ab2
cluster	80a22d4ce3464fee9395366ff3ac9f6b
schema	1
oldest	1
\.


--
-- Data for Name: part; Type: TABLE DATA; Schema: bellhop; Owner: -
--

COPY bellhop.part (name, version, oldest) FROM stdin;
skills	1	1
\.


--
-- Data for Name: seen; Type: TABLE DATA; Schema: bellhop; Owner: -
--

COPY bellhop.seen (at_ms, keys) FROM stdin;
\.


--
-- Data for Name: skill; Type: TABLE DATA; Schema: bellhop; Owner: -
--

COPY bellhop.skill (id, store, name, status, type, author, updated_at, created_at, status_changed_at, content_hash, description, said_type, bag, meta, tags, bytes_at) FROM stdin;
1	1	\\x6b657074	0	\\x70726f6365647572616c	\\x74	1794854320	1794854320	1794854320	\\x65326239616564383265336337366434333337656532373539313666333630396337623234343966653536663833366431323431623064366135323530336235	\N	\N	\N	\\x7b226e616d65223a226b657074222c2276657273696f6e223a22653262396165643832653363222c22636f6e74656e745f68617368223a2265326239616564383265336337366434333337656532373539313666333630396337623234343966653536663833366431323431623064366135323530336235222c22737461747573223a224472616674222c2274797065223a2270726f6365647572616c222c22617574686f72223a227422	{}	1
\.


--
-- Data for Name: skill_size; Type: TABLE DATA; Schema: bellhop; Owner: -
--

COPY bellhop.skill_size (tenant, bytes) FROM stdin;
\\x74	296
\.


--
-- Data for Name: skill_store; Type: TABLE DATA; Schema: bellhop; Owner: -
--

COPY bellhop.skill_store (id, tenant, ns, sum, n) FROM stdin;
1	\\x74	\\x	\\xcc7b1519f00f100a8d9139d17ef5d0d6b12c1d482a40243c8cff9a91d39dba63	1
\.


--
-- Data for Name: skill_version; Type: TABLE DATA; Schema: bellhop; Owner: -
--

COPY bellhop.skill_version (id, skill, version, content_hash, status, previous, changed_at, changed_by, body, source) FROM stdin;
1	1	\\x653262396165643832653363	\\x65326239616564383265336337366434333337656532373539313666333630396337623234343966653536663833366431323431623064366135323530336235	0	\N	1794854320	\\x74	\N	\\x2320536b696c6c3a206b6570740a23205374617475733a2044726166740a7361792068656c6c6f0a
\.


--
-- Name: boot; Type: SEQUENCE SET; Schema: bellhop; Owner: -
--

SELECT pg_catalog.setval('bellhop.boot', 2, true);


--
-- Name: skill_id_seq; Type: SEQUENCE SET; Schema: bellhop; Owner: -
--

SELECT pg_catalog.setval('bellhop.skill_id_seq', 1, true);


--
-- Name: skill_store_id_seq; Type: SEQUENCE SET; Schema: bellhop; Owner: -
--

SELECT pg_catalog.setval('bellhop.skill_store_id_seq', 1, true);


--
-- Name: skill_version_id_seq; Type: SEQUENCE SET; Schema: bellhop; Owner: -
--

SELECT pg_catalog.setval('bellhop.skill_version_id_seq', 1, true);


--
-- Name: fate fate_pkey; Type: CONSTRAINT; Schema: bellhop; Owner: -
--

ALTER TABLE ONLY bellhop.fate
    ADD CONSTRAINT fate_pkey PRIMARY KEY (writer);


--
-- Name: kv kv_pkey; Type: CONSTRAINT; Schema: bellhop; Owner: -
--

ALTER TABLE ONLY bellhop.kv
    ADD CONSTRAINT kv_pkey PRIMARY KEY (ns, key);


--
-- Name: lease lease_pkey; Type: CONSTRAINT; Schema: bellhop; Owner: -
--

ALTER TABLE ONLY bellhop.lease
    ADD CONSTRAINT lease_pkey PRIMARY KEY (name);


--
-- Name: mail mail_pkey; Type: CONSTRAINT; Schema: bellhop; Owner: -
--

ALTER TABLE ONLY bellhop.mail
    ADD CONSTRAINT mail_pkey PRIMARY KEY (id);


--
-- Name: meta meta_pkey; Type: CONSTRAINT; Schema: bellhop; Owner: -
--

ALTER TABLE ONLY bellhop.meta
    ADD CONSTRAINT meta_pkey PRIMARY KEY (name);


--
-- Name: part part_pkey; Type: CONSTRAINT; Schema: bellhop; Owner: -
--

ALTER TABLE ONLY bellhop.part
    ADD CONSTRAINT part_pkey PRIMARY KEY (name);


--
-- Name: skill skill_pkey; Type: CONSTRAINT; Schema: bellhop; Owner: -
--

ALTER TABLE ONLY bellhop.skill
    ADD CONSTRAINT skill_pkey PRIMARY KEY (id);


--
-- Name: skill_size skill_size_pkey; Type: CONSTRAINT; Schema: bellhop; Owner: -
--

ALTER TABLE ONLY bellhop.skill_size
    ADD CONSTRAINT skill_size_pkey PRIMARY KEY (tenant);


--
-- Name: skill skill_store_name_key; Type: CONSTRAINT; Schema: bellhop; Owner: -
--

ALTER TABLE ONLY bellhop.skill
    ADD CONSTRAINT skill_store_name_key UNIQUE (store, name);


--
-- Name: skill_store skill_store_pkey; Type: CONSTRAINT; Schema: bellhop; Owner: -
--

ALTER TABLE ONLY bellhop.skill_store
    ADD CONSTRAINT skill_store_pkey PRIMARY KEY (id);


--
-- Name: skill_store skill_store_tenant_ns_key; Type: CONSTRAINT; Schema: bellhop; Owner: -
--

ALTER TABLE ONLY bellhop.skill_store
    ADD CONSTRAINT skill_store_tenant_ns_key UNIQUE (tenant, ns);


--
-- Name: skill_version skill_version_pkey; Type: CONSTRAINT; Schema: bellhop; Owner: -
--

ALTER TABLE ONLY bellhop.skill_version
    ADD CONSTRAINT skill_version_pkey PRIMARY KEY (id);


--
-- Name: seen_at; Type: INDEX; Schema: bellhop; Owner: -
--

CREATE INDEX seen_at ON bellhop.seen USING btree (at_ms);


--
-- Name: skill_version_of; Type: INDEX; Schema: bellhop; Owner: -
--

CREATE INDEX skill_version_of ON bellhop.skill_version USING btree (skill, id);


--
-- PostgreSQL database dump complete
--

\unrestrict s7rwhDMyI8vL6xiptS7dd2vxP6c8ddgZf1FRZ0jw0yYWZqke2XWRcAHfEW9xHMX

