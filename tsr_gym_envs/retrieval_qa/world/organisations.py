"""How universities, companies, clubs and newspapers are written and asked about; `grammar` reads the lines."""

ORGANISATIONS = """
kind university
word field law|medicine|botany|engineering|philology|astronomy|economics
call {name}
refer the university
open {name} is a university with a strong school of {field}.
open {name} is a public university.
open Best known for {field}, {name} is a university of medium size.
alias Its graduates call it {alias}.
alias In its first decades {it} was named {alias}.
filler The library keeps a rare collection on {field}.
filler Its rowing crew has never lost the spring regatta.
filler The department of {field} occupies a former barracks.
filler Lectures in {field} are open to the public on Thursdays.

relation university_city city
tell {s} is in {o}.
tell Its main campus is in {o}.
tell Lecture halls and laboratories stand in the centre of {o}.
noun the city in which {x} is located
noun the university city of {x}
ask In which city is {x}?
ask Where is the main campus of {x}?
find campus city
same Are {a} and {b} in the same city?

relation university_founder person/scholar
tell {s} was founded by {o}.
tell The founder was {o}.
tell {o} founded {it} with borrowed money.
noun the founder of {x}
noun the person who founded {x}
ask Who founded {x}?
ask Who was the founder of {x}?
find founder
inoun the university founded by {x}
iask Which university was founded by {x}?
ifind university founder
back {s} founded {o}.

relation university_year year
tell {s} was founded in {o}.
tell The first students enrolled in {o}.
tell Teaching began in {o}.
ask In what year was {x} founded?
ask When did teaching begin at {x}?
find founded year
less was founded first
more was founded later
before Was {a} founded before {b}?

relation students students
tell It has {o}.
tell Around the campus live most of its {o}.
tell Enrolment stands at {o}.
ask How many students does {x} have?
ask What is the enrolment of {x}?
find students enrolment
less has fewer students
more has more students

kind company
word fame thrift|bold advertising|long contracts|early use of computers|plain catalogues|loyal staff
call {name}
refer the company
open {name} is {a trade}.
open {name} is {a trade} known for {fame}.
open Privately held and publicity-shy, {name} is {a trade}.
alias It trades as {alias}.
alias In the press {it} is usually just {alias}.
filler A strike once stopped all work for eleven weeks.
filler Former employees speak of its {fame}.
filler {s} has moved its archives three times.
filler Business schools use {it} as an example of {fame}.

relation headquarters city
tell {s} has its headquarters in {o}.
tell Its head office is in {o}.
tell {s} is run from {o}.
noun the city where {x} has its headquarters
noun the headquarters city of {x}
ask In which city does {x} have its headquarters?
ask Where is the head office of {x}?
find headquarters
same Do {a} and {b} have their headquarters in the same city?

relation company_founder person/entrepreneur
tell {s} was founded by {o}.
tell The founder was {o}.
tell {o} started {it} in a rented workshop.
noun the founder of {x}
noun the entrepreneur who started {x}
ask Who founded {x}?
ask Who started {x}?
find founder
inoun the company founded by {x}
iask Which company was founded by {x}?
iask What company did {x} start?
ifind company founder
back {s} founded {o}.

relation company_year year
tell {s} was founded in {o}.
tell {s} has been in business since {o}.
tell The articles of association date from {o}.
ask In what year was {x} founded?
ask Since what year has {x} been in business?
ask What is the founding year of {x}?
find founded year
less was founded first
more was founded later
before Was {a} founded before {b}?

relation parent_company company
tell {s} is a subsidiary of {o}.
tell Its parent company is {o}.
tell After years of losses it was bought by {o}.
noun the parent company of {x}
noun the owner of {x}
ask What is the parent company of {x}?
ask Which company owns {x}?
find parent company subsidiary

relation chief_executive person/manager
tell The chief executive is {o}.
tell {s} is led by {o}.
tell {o} runs {it}.
noun the chief executive of {x}
noun the person who runs {x}
ask Who is the chief executive of {x}?
ask Who runs {x}?
find chief executive
inoun the company run by {x}
iask Which company is run by {x}?
ifind company chief executive
back {s} runs {o}.

kind club
word colour green and white|sky blue|red and black|amber|claret|navy and gold
call the football club {name}
refer the club
open {name} is a football club that plays in {colour}.
open {name} is a football club.
open Nicknamed for its {colour} shirts, {name} is a football club.
alias Supporters call the team {alias}.
alias In the first seasons {it} played as {alias}.
filler The club never won a national title but twice lost a final.
filler The youth teams of {it} wear {colour} as well.
filler Its anthem is an old sea shanty.
filler A fan magazine is printed in {colour}.

relation club_city city
tell {s} comes from {o}.
tell It represents {o} in the league.
tell {s} is based in {o}.
noun the home city of {x}
noun the city that {x} represents
ask What is the home city of {x}?
ask Which city does {x} represent?
find home city
same Are {a} and {b} based in the same city?

relation stadium stadium
tell {s} plays its home matches at {o}.
tell Its ground is {o}.
tell Home matches are held at {o}.
noun the ground of {x}
noun the stadium where {x} plays its home matches
ask At which stadium does {x} play its home matches?
ask What is the ground of {x}?
find home ground
inoun the football club whose ground is {x}
iask Which football club plays at {x}?
ifind football club home matches

relation coach person/football manager
tell The team is coached by {o}.
tell {o} took over as coach last season.
tell Its manager is {o}.
noun the coach of {x}
noun the person who manages {x}
ask Who is the coach of {x}?
ask Who manages {x}?
find coach manager
inoun the football club coached by {x}
iask Which football club is coached by {x}?
ifind football club coach
back {s} coaches {o}.

relation club_year year
tell {s} was founded in {o}.
tell Its first match was played in {o}.
ask In what year was {x} founded?
ask When did {x} play its first match?
ask What is the founding year of {x}?
find founded year
less was founded first
more was founded later
before Was {a} founded before {b}?

kind newspaper
word slant liberal|conservative|satirical|business-minded|rural|independent
call the newspaper {name}
refer the paper
open {name} is {a slant} newspaper.
open {name} is {a slant} daily newspaper printed on cream paper.
open Widely read on trains, {name} is {a slant} newspaper.
alias Readers call it {alias}.
alias For a time it was printed as {alias}.
filler The crossword is considered unusually hard.
filler Its {slant} editorials are often quoted abroad.
filler {s} gave up its Sunday edition to save money.
filler The letters page of {it} runs to two pages.

relation paper_city city
tell {s} is published in {o}.
tell Its newsroom is in {o}.
tell {s} appears every weekday in {o}.
noun the city where {x} is published
noun the home city of {x}
ask In which city is {x} published?
ask Where is the newsroom of {x}?
find newsroom city
same Are {a} and {b} published in the same city?

relation editor person/journalist
tell Its editor is {o}.
tell {s} is edited by {o}.
tell {o} sits in the editor's chair.
noun the editor of {x}
noun the journalist who edits {x}
ask Who is the editor of {x}?
ask Who edits {x}?
find editor
inoun the newspaper edited by {x}
iask Which newspaper is edited by {x}?
ifind newspaper editor
back {s} edits {o}.

relation paper_year year
tell {s} was founded in {o}.
tell The first issue appeared in {o}.
tell {s} has been printed since {o}.
ask In what year was {x} founded?
ask When did the first issue of {x} appear?
ask What is the founding year of {x}?
find first issue founded
less was founded first
more was founded later
before Was {a} founded before {b}?
"""
