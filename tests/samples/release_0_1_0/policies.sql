BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0002');
CREATE TABLE audit (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	at_s DOUBLE NOT NULL, 
	user_name VARCHAR(255) NOT NULL, 
	origin VARCHAR(255) NOT NULL, 
	action VARCHAR(64) NOT NULL, 
	subject VARCHAR(255) NOT NULL, 
	result VARCHAR(16) NOT NULL, 
	reason TEXT NOT NULL, 
	"before" TEXT, 
	"after" TEXT, 
	CONSTRAINT ck_audit_result CHECK (result IN ('done', 'refused'))
);
INSERT INTO "audit" VALUES(1,1.79592951731051516531e+09,'anna','10.0.0.1','policy.create','c4a42b5b-5d66-4931-9d8b-35fcb780905d','done','',NULL,'{"id":"c4a42b5b-5d66-4931-9d8b-35fcb780905d","name":"packing","version":1,"description":"of SQL","selector":{"unit":"RankSelector"}}');
INSERT INTO "audit" VALUES(2,1.79592951732417225839e+09,'anna','10.0.0.1','policy.update','c4a42b5b-5d66-4931-9d8b-35fcb780905d','done','','{"id":"c4a42b5b-5d66-4931-9d8b-35fcb780905d","name":"packing","version":1,"description":"of SQL","selector":{"unit":"RankSelector"}}','{"id":"c4a42b5b-5d66-4931-9d8b-35fcb780905d","name":"packing","version":2,"description":"of SQL","filters":[{"unit":"RamFilter"}],"selector":{"unit":"RankSelector"}}');
INSERT INTO "audit" VALUES(3,1.79592951733464241022e+09,'anna','10.0.0.1','policy.update','c4a42b5b-5d66-4931-9d8b-35fcb780905d','done','','{"id":"c4a42b5b-5d66-4931-9d8b-35fcb780905d","name":"packing","version":2,"description":"of SQL","filters":[{"unit":"RamFilter"}],"selector":{"unit":"RankSelector"}}','{"id":"c4a42b5b-5d66-4931-9d8b-35fcb780905d","name":"packing","version":3,"description":"of SQL","filters":[{"unit":"RamFilter"}],"weights":[{"unit":"RAMWeigher","factor":2.0}],"selector":{"unit":"RankSelector"}}');
INSERT INTO "audit" VALUES(4,1.7959295173412101269e+09,'anna','10.0.0.1','policy.create','c1d218ab-be19-4a68-8f71-d94d9057b843','done','',NULL,'{"id":"c1d218ab-be19-4a68-8f71-d94d9057b843","name":"spare","version":1,"selector":{"unit":"RankSelector"}}');
INSERT INTO "audit" VALUES(5,1.79592951734848308561e+09,'anna','10.0.0.1','cluster.attach','east','done','',NULL,'{"changed_at_s":1795929517.3484733,"changed_by":"anna","cluster":"east","is_built_in":false,"parameters":{},"policy_id":"c4a42b5b-5d66-4931-9d8b-35fcb780905d","version":1}');
INSERT INTO "audit" VALUES(6,1.79592951735996317862e+09,'anna','10.0.0.1','cluster.attach','south','done','',NULL,'{"changed_at_s":1795929517.359952,"changed_by":"anna","cluster":"south","is_built_in":true,"parameters":{"CpuOverCommitDurationMinutes":"2","HighUtilization":"80"},"policy_id":"b4ed2332-a7ac-4d5f-9596-99a439cb2812","version":1}');
INSERT INTO "audit" VALUES(7,1.79592951737025833128e+09,'bert','command on admin1','policy.update','c4a42b5b-5d66-4931-9d8b-35fcb780905d','done','','{"id":"c4a42b5b-5d66-4931-9d8b-35fcb780905d","name":"packing","version":3,"description":"of SQL","filters":[{"unit":"RamFilter"}],"weights":[{"unit":"RAMWeigher","factor":2.0}],"selector":{"unit":"RankSelector"}}','{"id":"c4a42b5b-5d66-4931-9d8b-35fcb780905d","name":"packing","version":4,"description":"of SQL, changed","filters":[{"unit":"RamFilter"}],"weights":[{"unit":"RAMWeigher","factor":2.0}],"selector":{"unit":"RankSelector"}}');
CREATE TABLE policy (
	id VARCHAR(255) NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	name_key VARCHAR(765) NOT NULL, 
	document TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	changed_by VARCHAR(255) NOT NULL, 
	changed_at_s DOUBLE NOT NULL, 
	CONSTRAINT pk_policy PRIMARY KEY (id), 
	CONSTRAINT ck_policy_version CHECK (version >= 1), 
	CONSTRAINT ck_policy_name CHECK (name <> ''), 
	CONSTRAINT uq_policy_name_key UNIQUE (name_key)
);
INSERT INTO "policy" VALUES('c4a42b5b-5d66-4931-9d8b-35fcb780905d','packing','packing','{"id":"c4a42b5b-5d66-4931-9d8b-35fcb780905d","name":"packing","version":4,"description":"of SQL, changed","filters":[{"unit":"RamFilter"}],"weights":[{"unit":"RAMWeigher","factor":2.0}],"selector":{"unit":"RankSelector"}}',4,'bert',1.79592951736646246909e+09);
INSERT INTO "policy" VALUES('c1d218ab-be19-4a68-8f71-d94d9057b843','spare','spare','{"id":"c1d218ab-be19-4a68-8f71-d94d9057b843","name":"spare","version":1,"selector":{"unit":"RankSelector"}}',1,'anna',1.7959295173368330002e+09);
CREATE TABLE policy_cluster (
	cluster VARCHAR(128) NOT NULL, 
	policy_id VARCHAR(255), 
	built_in_policy VARCHAR(255), 
	parameters TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	changed_by VARCHAR(255) NOT NULL, 
	changed_at_s DOUBLE NOT NULL, 
	CONSTRAINT pk_policy_cluster PRIMARY KEY (cluster), 
	CONSTRAINT ck_policy_cluster_version CHECK (version >= 1), 
	CONSTRAINT ck_policy_cluster_one_policy CHECK ((policy_id IS NULL) <> (built_in_policy IS NULL)), 
	CONSTRAINT fk_policy_cluster_policy_id FOREIGN KEY(policy_id) REFERENCES policy (id) ON DELETE RESTRICT
);
INSERT INTO "policy_cluster" VALUES('east','c4a42b5b-5d66-4931-9d8b-35fcb780905d',NULL,'{}',1,'anna',1.79592951734847331045e+09);
INSERT INTO "policy_cluster" VALUES('south',NULL,'b4ed2332-a7ac-4d5f-9596-99a439cb2812','{"CpuOverCommitDurationMinutes":"2","HighUtilization":"80"}',1,'anna',1.79592951735995197295e+09);
CREATE TABLE policy_unit (
	id VARCHAR(255) NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	description TEXT NOT NULL, 
	is_enabled BOOLEAN NOT NULL, 
	parameters TEXT NOT NULL, 
	CONSTRAINT pk_policy_unit PRIMARY KEY (id), 
	CONSTRAINT uq_policy_unit_name_kind UNIQUE (name, kind), 
	CONSTRAINT ck_policy_unit_kind CHECK (kind IN ('filter', 'weight', 'balance', 'selector'))
);
CREATE TABLE policy_user_unit (
	policy_id VARCHAR(255) NOT NULL, 
	unit_id VARCHAR(255) NOT NULL, 
	CONSTRAINT pk_policy_user_unit PRIMARY KEY (policy_id, unit_id), 
	CONSTRAINT fk_policy_user_unit_policy_id FOREIGN KEY(policy_id) REFERENCES policy (id) ON DELETE CASCADE, 
	CONSTRAINT fk_policy_user_unit_unit_id FOREIGN KEY(unit_id) REFERENCES policy_unit (id) ON DELETE RESTRICT
);
CREATE INDEX ix_policy_user_unit_unit_id ON policy_user_unit (unit_id);
CREATE INDEX ix_policy_cluster_policy_id ON policy_cluster (policy_id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('audit',7);
COMMIT;
